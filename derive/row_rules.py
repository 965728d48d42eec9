"""Exact rules for means over a random row: linearity, Stein's identity, the heat equation, Taylor coefficients.

Guarantees: what they prove holds for every n ≥ 1 and every variance v; both sides are brought to one polynomial in the
power sums over Q[n, v] and compared coefficient by coefficient. A difference of the Taylor coefficients at v = 0 that
interval arithmetic shows at one n is a refutation, with that n as witness; any other difference is Unknown.
Does not: take limits (`derive.limit_rules`). Only the stated error of a truncated series is put beside the oracle.

Scores are i.i.d. N(0, v) in every statement here; that is what RowMean says.
"""

from __future__ import annotations

from typing import Any

import sympy
from sympy.polys.rings import PolyElement

from derive.errors import StatementError
from derive.oracle_rules import guarded, with_stated_error
from derive.power_sums import N, PowerSums, V, highest, remainder_bound, taylor
from derive.refutation import at_points
from derive.row_nodes import RowMean, Taylor
from derive.rules import rule
from derive.step import Step
from derive.verdict import Kind, Verdict

_ALL = "every n ≥ 1 and v ≥ 0"
_ROWS = tuple({N: n} for n in (2, 3, 5))


@rule("row-mean")
@guarded
def row_mean(step: Step) -> Verdict:
    """Linearity of the mean, and the abbreviations tr J = 1 - p_2, ‖J‖_F² = p_2 - 2p_3 + p_2², H = log Z - α·x.

    Sound because both sides become the mean of one and the same polynomial in the row's numbers.
    """
    return _equal(step, stein=False)


@rule("stein")
@guarded
def stein(step: Step) -> Verdict:
    """Gaussian integration by parts: E[x_l h] = v E[∂_l h] for i.i.d. scores N(0, v) and smooth bounded h.

    Every (α·x) G, G a polynomial in power sums, is replaced by v Σ_l ∂_l (α_l G), computed from ∂α_j/∂x_l alone.
    """
    return _equal(step, stein=True)


@rule("heat-flow")
@guarded
def heat_flow(step: Step) -> Verdict:
    """The heat equation: d/dv E F(x) = ½ E ΔF(x) for x_l i.i.d. N(0, v), F smooth with bounded derivatives.

    ΔF is computed from ∂α_j/∂x_l = α_j (δ_jl - α_l); explicit factors of v are differentiated by the product rule.
    """
    return _equal(step, stein=True)


@rule("heat-series")
@guarded
def heat_series(step: Step) -> Verdict:
    """Taylor coefficients at v = 0: that of v^k is (Δ^k F)(0)/(2^k k!), by the heat equation used k times.

    At x = 0 every α_j is 1/n. The coefficients are compared as polynomials in n after clearing its powers. Taylor's
    theorem with Lagrange's remainder holds because all derivatives in v are bounded.
    """
    if not isinstance(step.lhs, Taylor):
        return Verdict.unknown("expected Taylor(mean, v, order) on the left")
    mean, variable, order = step.lhs.args
    if not isinstance(mean, RowMean) or mean.args[1:] != (N, V) or variable != V:
        return Verdict.unknown("expected the Taylor polynomial in v of RowMean(f, n, v)")
    known = taylor(mean.args[0], int(order))
    stated = _coefficients(step.rhs, int(order))
    if stated is None:
        return Verdict.unknown(f"the right side is not a polynomial in v of degree at most {order}")
    for k, (a, b) in enumerate(zip(known, stated, strict=True)):
        if not _same_in_n(a, b):
            return at_points(a, b, _ROWS, f"the coefficient of v^{k} is {a}, not {b}", power=k)
    evidence: dict[str, object] = {"checkers": ["generator on power sums"], "order": int(order)}
    try:
        evidence["remainder"] = f"at most {remainder_bound(mean.args[0], int(order))} v^{int(order) + 1}"
    except StatementError:
        evidence["remainder"] = f"O(v^{int(order) + 1})"
    return with_stated_error(step, Verdict.proved(f"every n ≥ 1, to v^{order}", **evidence))


def _equal(step: Step, *, stein: bool) -> Verdict:
    try:
        ring = PowerSums(_needed(step.lhs, step.rhs))
        difference = _body(ring, step.lhs * V) - _body(ring, step.rhs * V)
        if stein:
            difference = ring.stein(difference)
    except StatementError as error:
        return Verdict.unknown(str(error))
    if not difference:
        return Verdict.proved(_ALL, checkers=["coefficients over Q[n, v]"])
    return _refutation(ring, difference)


def _refutation(ring: PowerSums, difference: PolyElement) -> Verdict:
    """Equal means have equal Taylor coefficients; the first that is not zero refutes."""
    try:
        coefficients = taylor(ring.write(difference), 3)
    except StatementError as error:
        return Verdict.unknown(f"the two sides are means of different polynomials, and {error}")
    for k, coefficient in enumerate(coefficients):
        words = f"equal means have equal Taylor coefficients; that of v^{k} in v(lhs - rhs) is {coefficient}, not 0"
        verdict = at_points(coefficient, 0, _ROWS, words, power=k)
        if verdict.kind is Kind.REFUTED:
            return verdict
    return Verdict.unknown("the two sides are means of different polynomials in the power sums")


def _needed(*sides: Any) -> int:
    bodies = [m.args[0] for side in sides for m in side.atoms(RowMean)]
    return max([2, *(highest(b) for b in bodies)]) + 8


def _body(ring: PowerSums, side: Any) -> PolyElement:
    """The polynomial whose mean the side is. Raises StatementError unless it is linear in means over (n, v)."""
    out = ring.ring.zero
    for term in sympy.Add.make_args(sympy.expand(side)):
        means = [f for f in sympy.Mul.make_args(term) if isinstance(f, (RowMean, sympy.Derivative))]
        if len(means) > 1 or any(f.has(RowMean) for f in sympy.Mul.make_args(term) if f not in means):
            raise StatementError(f"{term} is not linear in means")
        factor = term / means[0] if means else term
        body = _mean(ring, means[0]) if means else ring.ring.one
        out += ring.read(factor) * body
    return out


def _mean(ring: PowerSums, node: Any) -> PolyElement:
    if isinstance(node, sympy.Derivative):
        if len(node.variables) != 1 or node.variables[0] != V:
            raise StatementError(f"{node}: only the first derivative in v is known")
        f = ring.stein(_body(ring, node.expr))
        return f.diff(ring.v) + ring.laplacian(f) * sympy.QQ(1, 2)
    if node.args[1:] != (N, V):
        raise StatementError(f"{node}: means of one statement must be over one row, RowMean(f, n, v)")
    return ring.read(node.args[0])


def _coefficients(side: Any, order: int) -> list[Any] | None:
    try:
        poly = sympy.Poly(sympy.expand(side), V)
    except sympy.PolynomialError:
        return None
    if poly.degree() > order:
        return None
    return [poly.coeff_monomial(V**k) for k in range(order + 1)]


def _same_in_n(a: Any, b: Any) -> bool:
    """Equality in Q(n)[log n], by clearing denominators and comparing polynomial coefficients."""
    log = sympy.Dummy("log_n")
    numerator, _ = sympy.fraction(sympy.together((a - b).subs(sympy.log(N), log)))
    try:
        return bool(sympy.Poly(numerator, N, log).is_zero)
    except sympy.PolynomialError:
        return False
