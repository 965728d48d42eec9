"""Recursions: statements about L steps, proved from the first case and one step.

Guarantees: the first case and the step are equalities (or certified bounds) of their own, proved for a free array in
the place of the step before; the statement itself, recursion and all, is evaluated modulo a prime at drawn lengths
besides. A recursion is a Defined array whose body is Piecewise((first case, t = 0), (step, True)), t its first index.
Does not: accept a recursion that reads anything of the sequence but the step before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from derive.assumptions import Assumption, Defined, InRange
from derive.congruence import and_at_sizes
from derive.errors import StatementError
from derive.inequalities import Context, Sign, sign
from derive.instances import free_symbols
from derive.language import Diff
from derive.prover import decide
from derive.rules import check_step, rule
from derive.step import Step
from derive.verdict import Verdict, weakest


@dataclass(frozen=True)
class Recursion:
    """A Defined array taken apart: t, its other indices, the first case, the step, and the step with a free array
    `before` in the place of the sequence at t − 1."""

    array: Any
    t: Any
    indices: tuple[Any, ...]
    first: Any
    body: Any
    before: Any
    freed: Any

    @classmethod
    def of(cls, step: Step, name: str) -> Recursion:
        """The recursion of the array that the step's data name; StatementError if the assumptions define none."""
        array = step.data[name]
        found = [a for a in step.assumptions if isinstance(a, Defined) and a.array == array]
        if len(found) != 1:
            raise StatementError(f"the assumptions do not define {array}, which the step calls its {name}")
        defined = found[0]
        body = defined.body
        if not (isinstance(body, sympy.Piecewise) and len(body.args) == 2 and body.args[1].cond == sympy.true):
            raise StatementError(f"{defined.array} is not defined by a first case and a step")
        if body.args[0].cond != sympy.Eq(defined.indices[0], 0):
            raise StatementError(f"the first case of {defined.array} is not at {defined.indices[0]} = 0")
        first, step = body.args[0].expr, body.args[1].expr
        before = sympy.IndexedBase(f"{defined.array.label}_before", shape=defined.array.shape[1:], real=True)
        t = defined.indices[0]
        return cls(defined.array, t, defined.indices[1:], first, step, before, _freed(step, defined.array, t, before))

    def free(self, expr: Any) -> Any:
        """expr with the free array in the place of the sequence at t − 1."""
        return _freed(expr, self.array, self.t, self.before)


def _freed(expr: Any, array: Any, t: Any, before: Any) -> Any:
    reads = [x for x in expr.atoms(sympy.Indexed) if x.base == array]
    if any(x.indices[0] != t - 1 for x in reads):
        raise StatementError(f"a step of {array} reads it elsewhere than at {t} - 1: {reads}")
    return expr.replace(lambda x: isinstance(x, sympy.Indexed) and x.base == array, lambda x: before[x.indices[1:]])


def _conditions(step: Step, length: Any, *recursions: Recursion) -> tuple[Assumption, ...]:
    """The step's conditions without the recursions themselves, and 1 ≤ t ≤ length."""
    arrays = {r.array for r in recursions}
    kept = tuple(a for a in step.assumptions if not (isinstance(a, Defined) and a.array in arrays))
    return (*kept, *(InRange(t, 1, length) for t in {r.t for r in recursions}))


def _isolated(step: Step, recursion: Recursion, *others: Any) -> bool:
    """Whether the step reads the sequence only directly: not through other abbreviations, and none of `others`."""
    definitions = {a.array: a.body for a in step.assumptions if isinstance(a, Defined)}
    banned = {recursion.array, recursion.before, *others}
    if recursion.before in {x.base for x in recursion.body.atoms(sympy.Indexed)}:
        return False
    todo: list[Any] = [recursion.freed]
    seen: set[Any] = set()
    while todo:
        for base in {x.base for x in todo.pop().atoms(sympy.Indexed)} - seen:
            seen.add(base)
            if base in banned and base != recursion.before:
                return False
            if base in definitions:
                if recursion.before in {x.base for x in definitions[base].atoms(sympy.Indexed)}:
                    return False
                todo.append(definitions[base])
    return True


@rule("telescoping")
def telescoping(step: Step) -> Verdict:
    """Σ_{l=a}^{b} f(l) = F(b + 1) − F(a), because F(l + 1) − F(l) = f(l) for every l.

    Sound by cancellation of neighbours, for b ≥ a − 1. data["primitive"] = F as an expression in the sum's binder. A
    power k^l with the binder in the exponent is taken as a free symbol y, and k^(l+1) as k·y.
    """
    primitive = step.data.get("primitive")
    if step.relation != "=" or not isinstance(step.lhs, sympy.Sum) or primitive is None or len(step.lhs.limits) != 1:
        return Verdict.unknown("this rule sums one range, and needs its primitive")
    binder, low, high = step.lhs.limits[0]
    names: dict[Any, Any] = {}
    here, following, term = (
        _as_sequence(e, binder, names) for e in (primitive, primitive.subs(binder, binder + 1), step.lhs.function)
    )
    neighbours = decide(following - here, term, (*step.assumptions, InRange(binder, low, high)))
    ends = primitive.subs(binder, high + 1) - primitive.subs(binder, low)
    if sympy.expand(ends - step.rhs) != 0:
        return Verdict.unknown("the right side is not F at the upper end minus F at the lower one")
    return _all(step, [neighbours])


def _as_sequence(expr: Any, binder: Any, names: dict[Any, Any]) -> Any:
    """expr with base^(l + m) written base^m · y, one positive symbol y for the power base^l of each base."""

    def is_power(node: Any) -> bool:
        return isinstance(node, sympy.Pow) and binder in free_symbols(node.exp)

    def named(node: Any) -> Any:
        rest = sympy.expand(node.exp - binder)
        if binder in free_symbols(rest) or binder in free_symbols(node.base):
            raise StatementError(f"{node} is no power with {binder} plus a constant in the exponent")
        y = names.setdefault(node.base, sympy.Symbol(f"power_{len(names)}", positive=True))
        return node.base**rest * y

    return expr.replace(is_power, named)


@rule("iterated-chain-rule")
def iterated_chain_rule(step: Step) -> Verdict:
    """∂h_L/∂h_0 is the product of the L one-step Jacobians, for every L, by induction on the chain rule.

    Sound because h_t = F(h_(t−1), t) with h_0 = u gives ∂h_t/∂u = Σ_k ∂F/∂h[k] · ∂h_(t−1)/∂u, and the first case is
    ∂u/∂u = δ. The statement is Diff(h[L, i], u[j]) = P[L, i, j]. data: state and product (the arrays h and P, which the
    assumptions define),
    jacobian (t, i, k ↦ ∂F_i/∂h_k), count (how many entries the state has), column (a free index in their range).
    Checked: ∂F_i/∂h_k = jacobian with a free array for h_(t−1); P's step is Σ_k jacobian · P_(t−1), its first case δ.
    """
    state, product = Recursion.of(step, "state"), Recursion.of(step, "product")
    jacobian, count, k = step.data["jacobian"], step.data["count"], step.data["column"]
    if not isinstance(step.lhs, Diff) or not isinstance(step.rhs, sympy.Indexed):
        return Verdict.unknown("the statement is not a derivative and an entry of the product")
    read, entry = step.lhs.expr, step.lhs.entry
    (i,), (row, column) = state.indices, product.indices
    length = step.rhs.indices[0]
    if read != state.array[length, i] or step.rhs != product.array[length, row, column] or row != i:
        return Verdict.unknown("the statement is not of the state and the product at one time and row")
    if not isinstance(state.first, sympy.Indexed) or entry != state.first.base[column] or state.first.indices != (i,):
        return Verdict.unknown("the derivative is not by the first value of the state")
    if not _isolated(step, state, state.first.base) or product.t != state.t or k in (i, column):
        return Verdict.unknown("the recursion depends on the first value by another way than the step before")
    chained = sympy.Sum(jacobian(state.t, i, k) * product.array[state.t - 1, k, column], (k, 0, count - 1))
    if product.body != chained:
        return Verdict.unknown("the product's step is not the Jacobian times the product before it")
    conditions = _conditions(step, length, state, product)
    one_step = decide(
        Diff(state.freed, state.before[k]), state.free(jacobian(state.t, i, k)), (*conditions, InRange(k, 0, count - 1))
    )
    return _all(step, [one_step, decide(product.first, sympy.KroneckerDelta(i, column), conditions)])


@rule("iterated-factors")
def iterated_factors(step: Step) -> Verdict:
    """a_L = a_0 Π_{t=1}^{L} f_t for every L, because a_t = f_t · a_(t−1); the empty product is 1.

    Sound by induction on L. data: sequence (the array a, defined), factor (t ↦ f_t). Checked: the step equals f_t times
    a free array for a_(t−1).
    """
    sequence, factor = Recursion.of(step, "sequence"), step.data["factor"]
    if step.relation != "=" or not isinstance(step.lhs, sympy.Indexed) or step.lhs.base != sequence.array:
        return Verdict.unknown("the left side is not the sequence")
    length = step.lhs.indices[0]
    if step.lhs.indices[1:] != sequence.indices or not _isolated(step, sequence):
        return Verdict.unknown("the left side is not the sequence at its own indices")
    if step.rhs != sequence.first * sympy.Product(factor(sequence.t), (sequence.t, 1, length)):
        return Verdict.unknown("the right side is not the first value times the product of the factors")
    here = sequence.before[sequence.indices]
    return _all(step, [decide(sequence.freed, factor(sequence.t) * here, _conditions(step, length, sequence))])


@rule("iterated-sum")
def iterated_sum(step: Step) -> Verdict:
    """a_L = a_0 + Σ_{t=1}^{L} g_t for every L, because a_t = a_(t−1) + g_t, where g_t may read a_(t−1).

    Sound by induction on L. data: sequence (the array a, defined), increment (t ↦ g_t). Checked: the step equals a free
    array for a_(t−1) plus g_t.
    """
    sequence, increment = Recursion.of(step, "sequence"), step.data["increment"]
    if step.relation != "=" or not isinstance(step.lhs, sympy.Indexed) or step.lhs.base != sequence.array:
        return Verdict.unknown("the left side is not the sequence")
    length = step.lhs.indices[0]
    if step.lhs.indices[1:] != sequence.indices or not _isolated(step, sequence):
        return Verdict.unknown("the left side is not the sequence at its own indices")
    if step.rhs != sequence.first + sympy.Sum(increment(sequence.t), (sequence.t, 1, length)):
        return Verdict.unknown("the right side is not the first value plus the sum of the increments")
    grown = sequence.before[sequence.indices] + sequence.free(increment(sequence.t))
    return _all(step, [decide(sequence.freed, grown, _conditions(step, length, sequence))])


@rule("iterated-bound")
def iterated_bound(step: Step) -> Verdict:
    """|w_L|² ≤ |w_0|² Π_{t=1}^{L} c_t for every L, because |F_t(w)|² ≤ c_t |w|² for every w, with c_t ≥ 0.

    Sound by induction on L. data: sequence (the array w, defined, with one index besides t), factor (t ↦ c_t), count,
    certificate (before ↦ an expression equal to c_t|w|² − |F_t(w)|², not negative by its terms). Checked: that bound,
    for a free array w, by `certified-difference`; and that c_t ≥ 0.
    """
    sequence, factor, count = Recursion.of(step, "sequence"), step.data["factor"], step.data["count"]
    (i,) = sequence.indices

    def norm(entry: Any) -> Any:
        return sympy.Sum(entry**2, (i, 0, count - 1))

    lengths = {x.indices[0] for x in step.lhs.atoms(sympy.Indexed) if x.base == sequence.array}
    if step.relation != "<=" or len(lengths) != 1 or not _isolated(step, sequence):
        return Verdict.unknown("the left side is not the squared norm of the sequence at one time")
    (length,) = lengths
    if step.lhs != norm(sequence.array[length, i]):
        return Verdict.unknown("the left side is not the squared norm of the sequence")
    if step.rhs != norm(sequence.first) * sympy.Product(factor(sequence.t), (sequence.t, 1, length)):
        return Verdict.unknown("the right side is not the first squared norm times the product of the factors")
    conditions = _conditions(step, length, sequence)
    one = Step(
        norm(sequence.freed),
        factor(sequence.t) * norm(sequence.before[i]),
        "certified-difference",
        "<=",
        assumptions=conditions,
        data={"certificate": step.data["certificate"](sequence.before)},
    )
    if sign(factor(sequence.t), Context.of(one)) < Sign.NONNEGATIVE:
        return Verdict.unknown("a factor is not shown to be non-negative, so bounds don't multiply")
    verdict = check_step(one)
    return verdict if verdict.is_proved else Verdict.unknown(f"the bound of one step isn't shown: {verdict}")


def _all(step: Step, verdicts: list[Verdict]) -> Verdict:
    """The weakest of the verdicts; where all are proved, the second checker must agree on the statement itself."""
    worst = weakest(verdicts)
    if not worst.is_proved:
        return Verdict.unknown(f"a case isn't shown: {worst}")
    return and_at_sizes(step, "induction on normal forms")
