"""The rule "moment-routes": a statement about expectations, by independent routes.

Guarantees: `Proved` needs the statement's own left side, read from its SymPy form, to give the right side's very
coefficients by two routes that share only the reading, and exact enumeration at small sizes, by a third path that
shares nothing, to agree. `Refuted` needs an enumerated witness. Everything else is weaker, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import sympy

from derive.assumptions import AtLeast
from derive.errors import CheckersDisagree, MomentError, StatementError
from derive.moments import algebra, definitions
from derive.moments.diagrams import expect_by_diagrams
from derive.moments.enumeration import at, enumerated
from derive.moments.expansion import expanded_at
from derive.moments.layers import expect_by_layers
from derive.moments.model import GaussianPair, Model, model_of
from derive.moments.nodes import Expect, PowerSum, in_expectations
from derive.moments.reader import read
from derive.moments.traces import NotLayered
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict

# Values for the scalars of a law, and for correlations, which need a rational √(1 − ρ²).
_SCALARS = [sympy.Rational(*pq) for pq in ((3, 5), (2, 1), (1, 2), (3, 1), (4, 5), (3, 2), (5, 2), (2, 3), (7, 2))]
_CORRELATIONS = (sympy.Rational(3, 5), sympy.Rational(-4, 5))
# Outcomes a case may have; above that it is multiplied out instead.
_MOST = 700
_CASES = 4
# Numbers closer than this that are not seen to be equal are left undecided.
_RESOLUTION = sympy.Rational(1, 10**30)


@rule("moment-routes")
def moment_routes(step: Step) -> Verdict:
    """Two exact derivations of the left side give the right side's coefficients, and enumeration agrees.

    Why that is a proof: E of a product of entries is, by the definition of joint cumulants and independence, a sum
    over groupings of a product of cumulants and Kronecker deltas; summing deltas over whole index ranges gives
    powers of the sizes, for every size. The first route computes that sum. The second uses only that cumulants of
    independent sums add. Each is exact for all sizes; equality of the results is equality of polynomials with
    rational coefficients in the sizes, parameters and sums over fixed inputs. Enumeration checks the code, not the
    mathematics. Needs the laws as `RandomEntries`, fixed arrays as `FixedArray`, different rows as `Distinct`.
    """
    if step.relation != "=":
        return Verdict.unknown(f"the rule moment-routes checks equalities, not {step.relation!r}")
    try:
        sides = (definitions.opened(side, step.assumptions) for side in (step.lhs, step.rhs))
        lhs, rhs = (in_expectations(side) for side in sides)
        model = model_of(step.assumptions)
        _check_names(model, lhs, rhs)
        return _judge(replace(step, lhs=lhs, rhs=rhs), model)
    except (MomentError, StatementError) as reason:
        return Verdict.unknown(str(reason))


@rule("moment-limit")
def moment_limit(step: Step) -> Verdict:
    """The left side is worked out for all sizes as in moment-routes; the limit is read off its leading powers.

    Sound because an expectation over finitely many moments is a fraction of polynomials in the sizes (and square
    roots of sizes): as step.data["size"] → ∞ it tends to the quotient of the leading coefficients when the powers are
    equal, and to 0 when the denominator's is higher. Refuted shows the limit that was found, and numbers at which it
    differs from the right side.
    """
    if step.relation != "limit":
        return Verdict.unknown(f"the rule moment-limit checks limits, not {step.relation!r}")
    try:
        model, size = model_of(step.assumptions), step.data["size"]
        lhs, rhs = (in_expectations(definitions.opened(side, step.assumptions)) for side in (step.lhs, step.rhs))
        _check_names(model, lhs, rhs)
        exact = evaluate(lhs, model, "diagrams")
        verdict = _judge(replace(step, lhs=lhs, rhs=exact, relation="="), model)
        top, bottom, power = algebra.leading(exact, size)
    except (MomentError, StatementError) as reason:
        return Verdict.unknown(str(reason))
    if not verdict.is_proved:
        return verdict
    if power > 0:
        return _growing(replace(step, lhs=exact, rhs=rhs), model, top, bottom, power)
    if not _positive_polynomial(bottom, {a.size for a in step.assumptions if isinstance(a, AtLeast) and a.least >= 1}):
        return Verdict.unknown("the leading coefficient of the denominator may be 0")
    limit = algebra.expression_of(top) / algebra.expression_of(bottom) if power == 0 else sympy.S.Zero
    try:
        if algebra.same(limit, rhs):
            return Verdict.proved(f"{size} → ∞, every value of the rest", **verdict.evidence)
        _, witness = _enumeration(replace(step, lhs=limit, rhs=rhs, relation="="), model)
    except (MomentError, StatementError) as reason:
        return Verdict.unknown(str(reason))
    if witness is None:
        return Verdict.unknown("the limit is not shown to be the right side, nor to differ", limit=str(limit))
    return Verdict.refuted("the limit is another", limit=str(sympy.factor(limit)), **witness)


def _growing(step: Step, model: Model, top: algebra.Poly, bottom: algebra.Poly, power: Any) -> Verdict:
    """Refuted at numbers for the rest at which the leading coefficient isn't 0, so that the left side has no limit.

    step.lhs: the left side for all sizes. The witness: these numbers, the coefficient, and both sides at two sizes.
    """
    size, unknown = step.data["size"], Verdict.unknown("the left side may grow without bound: no witness was found")
    if step.rhs.has(size):
        return unknown
    leading = algebra.expression_of(top) / algebra.expression_of(bottom)
    for values in small_cases(replace(step, rhs=step.rhs + leading), model):
        coefficient = leading.xreplace(values)
        if not (coefficient.is_Rational and coefficient != 0):
            continue
        rest = {s: v for s, v in values.items() if s != size}
        at_sizes = {str(n): str(step.lhs.xreplace({**rest, size: sympy.Integer(n)})) for n in (10**3, 10**6)}
        shown = {str(s): str(v) for s, v in rest.items()}
        return Verdict.refuted(
            "the left side grows without bound",
            values=shown,
            power=str(power),
            leading=str(coefficient),
            left=at_sizes,
            right=str(step.rhs.xreplace(rest)),
        )
    return unknown


def evaluate(statement: Any, model: Model, route: str) -> Any:
    """A statement in `Expect` with each expectation worked out by one route: "diagrams" or "layers"."""
    work = {"diagrams": expect_by_diagrams, "layers": expect_by_layers}[route]
    return statement.xreplace({e: work(read(e.args[0]), model) for e in statement.atoms(Expect)})


def _judge(step: Step, model: Model) -> Verdict:
    by_diagrams, right = evaluate(step.lhs, model, "diagrams"), _right_side(step.rhs, model)
    doubtful = _may_be_zero((step.lhs, step.rhs, by_diagrams, right), step.assumptions)
    if doubtful:
        return Verdict.unknown(f"divides by {', '.join(doubtful)}, which may be 0: state AtLeast(size, 1)")
    agrees = algebra.same(by_diagrams, right)
    try:
        by_layers = evaluate(step.lhs, model, "layers")
    except NotLayered as reason:
        by_layers, missing = None, str(reason)
    if by_layers is not None and not algebra.same(by_diagrams, by_layers):
        raise CheckersDisagree(f"diagrams give {by_diagrams}, additive cumulants {by_layers} for {step.lhs}")
    checked, witness = _enumeration(step, model)
    if witness is not None:
        if agrees:
            raise CheckersDisagree(f"both routes give {step.rhs}, but enumeration refutes it at {witness}")
        return Verdict.refuted("an enumerated case differs", **witness)
    if not agrees:
        return Verdict.unknown("the routes do not give the right side", derived=str(by_diagrams))
    if len(checked) < min(2, len(list(small_cases(step, model)))):
        return Verdict.unknown("too few small cases could be enumerated, so the code that derived it is unchecked")
    if by_layers is None:
        sizes = "; ".join(checked)
        return Verdict.exact_at_sizes(f"sizes {sizes}; derived by one route for all", second_route=missing, error=0)
    return Verdict.proved("all sizes", routes=["index diagrams", "cumulants"], enumerated=checked)


def _check_names(model: Model, *sides: Any) -> None:
    """Two symbols of one name but different assumptions are two unknowns to SymPy, and one to every reader."""
    names: dict[str, Any] = {}
    for symbol in set().union(*(open_symbols(side) for side in sides), *_law_symbols(model)):
        if names.setdefault(symbol.name, symbol) != symbol:
            raise StatementError(f"two different symbols are named {symbol.name}: use one, with the same assumptions")


def _may_be_zero(sides: Iterable[Any], assumptions: Iterable[Any]) -> list[str]:
    """What stands under a fraction bar and is not seen to be positive.

    Positive is a polynomial whose coefficients are positive, in which every symbol is ≥ 0 or has an even power, and
    of which one term has only symbols that are positive, by their own assumptions or by `AtLeast`.
    """
    stated = {a.size for a in assumptions if isinstance(a, AtLeast) and a.least >= 1}
    below = {p.base for side in sides for p in side.atoms(sympy.Pow) if p.exp.is_negative}
    return sorted(str(base) for base in below if not _positive(base, stated))


def _positive(base: Any, stated: set[Any]) -> bool:
    if base.is_positive or base in stated:
        return True
    if base.has(Expect):
        # Judged by what the expectation comes to.
        return True
    top, bottom = algebra.fraction_of(base)
    return all(_positive_polynomial(poly, stated) for poly in (top, bottom))


def _positive_polynomial(poly: algebra.Poly, stated: set[Any]) -> bool:
    def sure(g: Any) -> bool:
        return g in stated or bool(getattr(g, "is_positive", False))

    def allowed(g: Any, power: int) -> bool:
        return (
            sure(g)
            or bool(getattr(g, "is_nonnegative", False))
            or (power % 2 == 0 and bool(getattr(g, "is_real", False)))
        )

    terms = list(poly.items())
    signs = all(value > 0 and all(allowed(g, e) for g, e in monomial) for monomial, value in terms)
    return signs and any(all(sure(g) for g, _ in monomial) for monomial, _ in terms)


def _right_side(rhs: Any, model: Model) -> Any:
    """The right side with sums over fixed arrays in the form in which the diagrams give them.

    It may itself hold expectations (as a step of a chain does): they are worked out by diagrams.
    """
    return _sums_in_form(evaluate(rhs, model, "diagrams"), model)


def _sums_in_form(expr: Any, model: Model) -> Any:
    if isinstance(expr, sympy.Sum):
        return expect_by_diagrams(read(expr), model)
    if not expr.args or isinstance(expr, (sympy.Indexed, PowerSum)):
        return expr
    return expr.func(*(_sums_in_form(a, model) for a in expr.args))


def _enumeration(step: Step, model: Model) -> tuple[list[str], dict[str, Any] | None]:
    """Small cases that agree, as text, and the first that does not, as a witness."""
    done: list[str] = []
    for values in small_cases(step, model):
        try:
            left, how = _value(step.lhs, model, values)
            right, _ = _value(step.rhs, model, values)
        except MomentError:
            continue
        if not algebra.same(left, right):
            if abs(sympy.N(left - right, 50)) < _RESOLUTION:
                continue
            shown = {str(s): str(v) for s, v in values.items()}
            return done, {"values": shown, "left": str(left), "right": str(right)}
        sizes = [f"{s} = {v}" for s, v in values.items() if s in _sizes(step)]
        done.append(f"{', '.join(sizes)} ({how})")
        if len(done) == _CASES:
            break
    return done, None


def _value(expr: Any, model: Model, values: Mapping[Any, Any]) -> tuple[Any, str]:
    """One side at numbers: by all outcomes where they are few, else multiplied out entry by entry."""
    if not expr.has(Expect):
        return at(expr, model, values), "evaluated"
    try:
        return enumerated(expr, model, values, most=_MOST), "all outcomes"
    except MomentError:
        return expanded_at(expr, model, values), "multiplied out"


def open_symbols(expr: Any) -> set[Any]:
    """Symbols an expression depends on: not its binders, and not the extents of arrays that it never sums over."""
    if isinstance(expr, sympy.Symbol):
        return {expr}
    if isinstance(expr, sympy.Indexed):
        return set().union(*(open_symbols(i) for i in expr.indices))
    if isinstance(expr, sympy.IndexedBase):
        return set()
    if isinstance(expr, sympy.Sum):
        binders = {limit[0] for limit in expr.limits}
        ends = set().union(*(open_symbols(e) for limit in expr.limits for e in limit[1:]))
        return (open_symbols(expr.function) - binders) | ends
    return set().union(*(open_symbols(a) for a in expr.args))


def _sizes(step: Step) -> list[Any]:
    """Sizes that the statement depends on: the symbols that are non-negative integers by assumption."""
    found = open_symbols(step.lhs) | open_symbols(step.rhs)
    return sorted((s for s in found if s.is_integer and s.is_nonnegative), key=str)


def small_cases(step: Step, model: Model) -> Iterator[dict[Any, Any]]:
    """Numbers for sizes, scalars and row labels: sizes pairwise different first, different labels different rows."""
    found = set().union(open_symbols(step.lhs), open_symbols(step.rhs), *_law_symbols(model))
    sizes = sorted((s for s in found if s.is_integer and s.is_nonnegative), key=str)
    labels = sorted((s for s in found if s.is_integer and s not in sizes), key=str)
    scalars = sorted(found - set(sizes) - set(labels), key=str)
    correlations = {f.law.correlation for f in model.families if isinstance(f.law, GaussianPair)}
    rows = {label: sympy.Integer(r) for r, label in enumerate(labels)}
    ordered = sorted(product((1, 2, 3), repeat=len(sizes)), key=lambda p: (-len(set(p)), sum(p)))
    # A size of 1 hides a wrong power of it, so cases without one come before further cases with one.
    small = [*ordered[:2], *sorted(ordered[2:], key=lambda p: 1 in p)]
    least = {a.size: a.least for a in step.assumptions if isinstance(a, AtLeast)}
    allowed = [p for p in small if all(v >= least.get(s, 0) for s, v in zip(sizes, p, strict=True))]
    for rank, chosen in enumerate(allowed):
        numbers = {s: _SCALARS[(place + 4 * rank) % len(_SCALARS)] for place, s in enumerate(scalars)}
        numbers |= {s: _CORRELATIONS[rank % 2] for s in scalars if s in correlations}
        yield {**dict(zip(sizes, map(sympy.Integer, chosen), strict=True)), **numbers, **rows}


def _law_symbols(model: Model) -> list[set[Any]]:
    found = []
    for family in model.families:
        for counts in (
            ((1, 0), (0, 1), (2, 0), (0, 2), (1, 1)) if len(family.members) == 2 else ((1,), (2,), (3,), (4,))
        ):
            try:
                found.append(set(sympy.sympify(family.joint_cumulant(counts), strict=True).free_symbols))
            except MomentError:
                break
    return found
