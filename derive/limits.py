"""Limits and recursions: named rules that reduce them to equalities that both checkers prove.

Guarantees: a limit is taken only through the laws listed in `limit_of`, after the expression was proved equal to a form
in which those laws apply; a statement about L steps is proved from its first case and its step, each an equality of its
own, and the statement itself is evaluated at drawn L besides.
Does not: find the form, or take a limit under a sum whose range grows.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.assumptions import Assumption, Defined, InRange
from derive.congruence import and_at_sizes
from derive.errors import DeriveError, StatementError
from derive.inequalities import Context, Sign, positive_denominators, sign
from derive.instances import free_symbols
from derive.language import Diff
from derive.prover import prove
from derive.rules import rule
from derive.step import Step
from derive.verdict import Kind, Verdict, weakest


def limit_of(expr: Any, variable: Any, point: Any, context: Context) -> Any:
    """The limit of expr as variable → point by the laws of limits, or None where they don't settle it.

    Laws: sums (over a range that doesn't move), products and integer powers of finite limits; quotients whose
    denominator tends to something positive; continuity of exp and tanh, and of log at a positive number; at ∞:
    exp(a − bx) → 0 and tanh(bx) → 1 for b > 0, and 1/x → 0.
    """
    if variable not in free_symbols(expr):
        return expr
    if expr == variable:
        return None if point in (sympy.oo, -sympy.oo) else point
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        parts = [limit_of(a, variable, point, context) for a in expr.args]
        return None if any(p is None for p in parts) else expr.func(*parts)
    if isinstance(expr, sympy.Sum):
        if any(variable in free_symbols(e) for _, *ends in expr.limits for e in ends):
            return None
        inner = context.given(*(tuple(limit) for limit in reversed(expr.limits)))
        body = limit_of(expr.function, variable, point, inner)
        return None if body is None else sympy.Sum(body, *expr.limits)
    if isinstance(expr, (sympy.exp, sympy.tanh)):
        return _saturating(expr, variable, point, context)
    if isinstance(expr, sympy.log):
        inside = limit_of(expr.args[0], variable, point, context)
        return sympy.log(inside) if inside is not None and sign(inside, context) is Sign.POSITIVE else None
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer:
        if expr == 1 / variable and point is sympy.oo:
            return sympy.Integer(0)
        inside = limit_of(expr.base, variable, point, context)
        if inside is None or (expr.exp < 0 and sign(inside, context) is not Sign.POSITIVE):
            return None
        return inside**expr.exp
    return None


def _saturating(expr: Any, variable: Any, point: Any, context: Context) -> Any:
    argument = expr.args[0]
    if point is sympy.oo:
        collected = sympy.collect(sympy.expand(argument), variable, evaluate=False)
        slope = collected.get(variable)
        if slope is not None and set(collected) <= {variable, sympy.Integer(1)}:
            if isinstance(expr, sympy.exp) and _factored_sign(-slope, context) is Sign.POSITIVE:
                return sympy.Integer(0)
            if isinstance(expr, sympy.tanh) and _factored_sign(slope, context) is Sign.POSITIVE:
                return sympy.Integer(1)
    inside = limit_of(argument, variable, point, context)
    return None if inside is None else expr.func(inside)


def _factored_sign(expr: Any, context: Context) -> Sign:
    return max(sign(expr, context), sign(sympy.factor_terms(expr), context))


@rule("limit-laws")
def limit_laws(step: Step) -> Verdict:
    """lim f = rhs by the laws of limits (sums, products, quotients, continuity, exp(−bx) → 0).

    Sound because f is first proved equal to data["form"] (f itself unless given) for every value of the variable by
    both checkers, the laws of `limit_of` apply to that form one by one, and what they come to is proved equal to rhs.
    The step's lhs is a SymPy Limit.
    """
    if step.relation != "limit" or not isinstance(step.lhs, sympy.Limit):
        return Verdict.unknown("this rule takes the limit of a SymPy Limit")
    expr, variable, point = step.lhs.args[:3]
    form = step.data.get("form", expr)
    context = Context.of(step)
    equal = prove(expr, form, (*step.assumptions, *positive_denominators(context, expr, form)))
    if not equal.is_proved:
        return equal if equal.kind is Kind.REFUTED else Verdict.unknown(f"the form isn't shown to be equal: {equal}")
    value = limit_of(form, variable, point, context)
    if value is None:
        return Verdict.unknown("the laws of limits don't settle the form")
    return weakest([equal, prove(value, step.rhs, step.assumptions)])


@rule("telescoping")
def telescoping(step: Step) -> Verdict:
    """Σ_{l=a}^{b} f(l) = F(b + 1) − F(a), because F(l + 1) − F(l) = f(l) for every l.

    Sound by cancellation of neighbours, for b ≥ a − 1. data["primitive"] = F as an expression in the sum's binder. A
    power k^l with the binder in the exponent is taken as an entry of a sequence with k^(l+1) = k·k^l.
    """
    primitive = step.data.get("primitive")
    if step.relation != "=" or not isinstance(step.lhs, sympy.Sum) or primitive is None or len(step.lhs.limits) != 1:
        return Verdict.unknown("this rule sums one range, and needs its primitive")
    binder, low, high = step.lhs.limits[0]
    grown = sympy.expand(sympy.expand_power_exp(primitive.subs(binder, binder + 1)) - primitive)
    powers = {p for e in (grown, step.lhs.function) for p in e.atoms(sympy.Pow) if binder in free_symbols(p.exp)}
    names = {p: sympy.Symbol(f"power{k}", positive=True) for k, p in enumerate(sorted(powers, key=str))}
    ranged = _with_range(step.assumptions, binder, low, high)
    neighbours = prove(grown.xreplace(names), sympy.expand(step.lhs.function).xreplace(names), ranged)
    ends = sympy.expand_power_exp(primitive.subs(binder, high + 1)) - primitive.subs(binder, low)
    if sympy.expand(ends - step.rhs) != 0:
        return Verdict.unknown("the right side is not F at the upper end minus F at the lower one")
    return _and_at_sizes(step, [neighbours])


@rule("iterated-chain-rule")
def iterated_chain_rule(step: Step) -> Verdict:
    """∂h_L/∂h_0 is the product of the L one-step Jacobians, for every L, by induction on the chain rule.

    Sound because h_t = F(h_(t−1), t) with h_0 = u gives ∂h_t/∂u = Σ_k ∂F/∂h[k] · ∂h_(t−1)/∂u, and the first case is
    ∂u/∂u = δ. data: state, product (Defined arrays, each with its recursion as a Piecewise on its first index: first
    case at 0, step otherwise), jacobian (the claimed ∂F_i/∂h_k as a function of t, i, k). Checked: that
    ∂F_i/∂h_k = jacobian with the previous state a free array, that the product's recursion is Σ_k jacobian · previous,
    that its first case is δ, and the whole statement modulo a prime at drawn sizes and lengths.
    """
    needed = {"state", "previous", "product", "jacobian", "places"}
    if missing := needed - step.data.keys():
        raise DeriveError(f"iterated-chain-rule needs data for {', '.join(sorted(missing))}")
    state, product, previous = step.data["state"], step.data["product"], step.data["previous"]
    jacobian, (t, i, j, k, count) = step.data["jacobian"], step.data["places"]
    u_start, body = _cases(state)
    p_start, p_body = _cases(product)
    if not (isinstance(step.lhs, Diff) and isinstance(u_start, sympy.Indexed)):
        return Verdict.unknown("the statement is not a derivative of the state by its first value")
    if step.lhs.entry.base != u_start.base or step.lhs.expr.base != state.array or step.rhs.base != product.array:
        return Verdict.unknown("the statement is not about the state and the product that were given")
    if step.lhs.expr.indices[0] != step.rhs.indices[0]:
        return Verdict.unknown("the two sides are not at one time")
    if step.rhs.indices[1:] != (*step.lhs.expr.indices[1:], *step.lhs.entry.indices):
        return Verdict.unknown("the product is not read at the row of the state and the column of the first value")
    if state.array == previous.base or not _mentions(body, state, t):
        return Verdict.unknown("the state's recursion may read the state before it only")
    conditions = (*step.assumptions, *step.data.get("step_assumptions", ()))
    free = body.replace(
        lambda x: isinstance(x, sympy.Indexed) and x.base == state.array,
        lambda x: previous.base[x.indices[1:]],
    )
    if free_symbols(u_start) & {t} or _reaches(body, step.assumptions, state, {previous.base, u_start.base}):
        return Verdict.unknown("the recursion depends on the state by another way than the state before it")
    one_step = prove(Diff(free, previous.base[k]), jacobian(t, i, k), conditions)
    first = prove(p_start, sympy.KroneckerDelta(i, j), conditions)
    chained = sympy.Sum(jacobian(t, i, k) * product.array[t - 1, k, j], (k, 0, count - 1))
    if p_body != chained:
        return Verdict.unknown("the product's recursion is not the Jacobian times the product before it")
    return _and_at_sizes(step, [one_step, first])


def _reaches(body: Any, assumptions: tuple[Assumption, ...], state: Defined, bases: set[Any]) -> bool:
    """Whether the recursion reads one of these arrays, or through another abbreviation one of them or the state."""
    definitions = {a.array: a.body for a in assumptions if isinstance(a, Defined)}
    seen: set[Any] = set()
    todo = [(body, True)]
    while todo:
        expr, outermost = todo.pop()
        for base in {x.base for x in expr.atoms(sympy.Indexed)}:
            if base in bases or (base == state.array and not outermost):
                return True
            if base != state.array and base in definitions and base not in seen:
                seen.add(base)
                todo.append((definitions[base], False))
    return False


def _mentions(body: Any, state: Defined, t: Any) -> bool:
    """Whether every state read in the recursion is that of t − 1."""
    reads = [x for x in body.atoms(sympy.Indexed) if x.base == state.array]
    return bool(reads) and all(x.indices[0] == t - 1 for x in reads)


def _cases(defined: Defined) -> tuple[Any, Any]:
    """(first case, recursion) of a definition Piecewise((first, t = 0), (recursion, True))."""
    body = defined.body
    if not (isinstance(body, sympy.Piecewise) and len(body.args) == 2 and body.args[1].cond == sympy.true):
        raise StatementError(f"{defined.array} is not defined by a first case and a recursion")
    if body.args[0].cond != sympy.Eq(defined.indices[0], 0):
        raise StatementError(f"the first case of {defined.array} is not at {defined.indices[0]} = 0")
    return body.args[0].expr, body.args[1].expr


@rule("iterated-factors")
def iterated_factors(step: Step) -> Verdict:
    """a_L = a_0 Π_{t=1}^{L} f_t (or ≤), for every L, by induction: a_t = f_t a_(t−1) (or ≤, with f_t ≥ 0).

    Sound by induction on L; the empty product is 1. data: sequence (a Defined array with a first case and a recursion
    on its first index), factor (f as a function of t). For ≤ the recursion's bound is a step of its own,
    data["bound"], whose lhs is the recursion and whose rhs is f_t times the sequence before it; both are checked. The
    whole statement is evaluated at drawn lengths besides.
    """
    sequence, factor = step.data.get("sequence"), step.data.get("factor")
    if sequence is None or factor is None:
        raise DeriveError("iterated-factors needs data for sequence and factor")
    t = sequence.indices[0]
    start, body = _cases(sequence)
    before = sequence.array[(t - 1, *sequence.indices[1:])]
    length = step.lhs.indices[0] if isinstance(step.lhs, sympy.Indexed) else None
    if length is None or step.lhs.base != sequence.array or step.lhs.indices[1:] != sequence.indices[1:]:
        return Verdict.unknown("the left side is not the sequence at its last time")
    if step.rhs != start * sympy.Product(factor(t), (t, 1, length)):
        return Verdict.unknown("the right side is not the first value times the product of the factors")
    if step.relation == "=":
        if sympy.expand(body - factor(t) * before) != 0:
            return Verdict.unknown("the recursion is not the factor times the value before")
        return _and_at_sizes(step, [Verdict.proved("every length")])
    if step.relation != "<=":
        return Verdict.unknown("this rule shows = and ≤ only")
    if sign(factor(t), Context.of(step)) < Sign.NONNEGATIVE:
        return Verdict.unknown("a factor is not shown to be non-negative, so bounds don't multiply")
    from derive.rules import check_step

    bound = step.data["bound"]
    if bound.lhs != body or bound.relation != "<=" or sympy.expand(bound.rhs - factor(t) * before) != 0:
        return Verdict.unknown("the bound of one step is not about this recursion")
    return check_step(bound)


def _with_range(conditions: tuple[Assumption, ...], binder: Any, low: Any, high: Any) -> tuple[Assumption, ...]:
    return (*conditions, InRange(binder, low, high))


def _and_at_sizes(step: Step, verdicts: list[Verdict]) -> Verdict:
    """The weakest of the verdicts; where all are proved, the second checker must agree on the statement itself."""
    worst = weakest(verdicts)
    if not worst.is_proved:
        return worst if worst.kind is Kind.REFUTED else Verdict.unknown(f"a case isn't shown: {worst}")
    return and_at_sizes(step, "induction on normal forms")
