"""Rules for other ways to keep scores in range: normalised queries and keys, softcap, sigmoid, sparsemax.

Guarantees: each rule's docstring is the theorem it applies; integrals are of rational functions, and an antiderivative
is checked by differentiating it.
Does not: say which way trains better.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError
from derive.oracle_rules import guarded, with_stated_error
from derive.power_sums import N, V
from derive.prover import refuted
from derive.refutation import at_points
from derive.row_constants import GapTail, mu
from derive.row_nodes import COS, TOP, CosMean
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict

# Mean of ‖J‖_F² of sparsemax over a row, |support| - 1; a symbol, because the oracle is of softmax.
SPARSE_JACOBIAN = sympy.Symbol("E_sparsemax_norm2_J", nonnegative=True)


@rule("sphere")
@guarded
def sphere(step: Step) -> Verdict:
    """E cos^(2k) = Π_{j<k} (2j + 1)/(d + 2j) for two independent uniform directions in d dimensions; odd powers give 0.

    cos² is Beta(1/2, (d-1)/2), as g_1²/Σ g_c² of i.i.d. normals.
    """
    expected = step.lhs.replace(lambda x: isinstance(x, CosMean), lambda x: _sphere(x.args[0], x.args[1]))
    if expected.has(CosMean, COS):
        return Verdict.unknown("expected means of polynomials in the cosine")
    if _rational(expected, step.rhs):
        return Verdict.proved("every d ≥ 1", checkers=["coefficients"])
    free = sorted(expected.free_symbols, key=str)
    points = [dict(zip(free, values, strict=False)) for values in ((2, 3, 5, 7), (5, 2, 3, 7))]
    return at_points(expected, step.rhs, points, f"the mean is {expected}")


def _sphere(body: Any, d: Any) -> Any:
    out = sympy.Integer(0)
    for (power,), coefficient in sympy.Poly(body, COS).terms():
        if power % 2 == 0:
            out += coefficient * sympy.Mul(*((2 * j + 1) / (d + 2 * j) for j in range(power // 2)))
    return out


@rule("bounded-scores")
@guarded
def bounded_scores(step: Step) -> Verdict:
    """If every score of a row of n lies in [-g, g], then max α ≤ e^g/(e^g + (n-1) e^-g).

    α_i = 1/(1 + Σ_{j≠i} e^(x_j - x_i)), and each difference is at least -2g. data: "bound", the g.
    """
    g = step.data.get("bound")
    if g is None or step.lhs != TOP or step.relation != "<=":
        return Verdict.unknown("expected max α <= …, and data['bound']")
    e = sympy.Dummy("e", positive=True)
    stated = step.rhs.replace(
        lambda x: isinstance(x, sympy.exp), lambda x: e ** sympy.Poly(x.args[0], g).coeff_monomial(g)
    )
    if stated.has(g):
        return Verdict.unknown("the bound is not a rational function of e^g")
    if _rational(e / (e + (N - 1) / e), stated):
        return Verdict.proved("every n ≥ 1 and g ≥ 0", checkers=["coefficients"])
    attained = 1 / (1 + (N - 1) * sympy.exp(-2 * g))
    points = [{N: n, g: width} for n in (2, 5) for width in (0, 1, 3)]
    words = f"a row with one score g and the others -g has the weight {attained}"
    return at_points(attained, step.rhs, points, words, relation="<=")


@rule("rational-order")
@guarded
def rational_order(step: Step) -> Verdict:
    """lhs ≤ rhs because rhs - lhs, with n = 1 + k and e^g = 1 + t, is a quotient of polynomials in k, t ≥ 0 without a
    negative coefficient.

    Both sides are rational functions of n and e^g; data: "bound", the g ≥ 0; n ≥ 1.
    """
    g = step.data.get("bound")
    if g is None or step.relation != "<=":
        return Verdict.unknown("expected <= and data['bound']")
    k, t = sympy.Dummy("k", nonnegative=True), sympy.Dummy("t", nonnegative=True)
    difference = (step.rhs - step.lhs).replace(
        lambda x: isinstance(x, sympy.exp), lambda x: (1 + t) ** sympy.Poly(x.args[0], g).coeff_monomial(g)
    )
    if difference.has(g):
        return Verdict.unknown("the sides are not rational functions of n and e^g")
    parts = sympy.fraction(sympy.cancel(sympy.together(difference.subs(N, 1 + k))))
    top, bottom = (sympy.Poly(sympy.expand(part), k, t) for part in parts)
    for sign in (1, -1):  # the common sign of a quotient is a matter of taste
        if all(sign * c >= 0 for poly in (top, bottom) for c in poly.coeffs()):
            return Verdict.proved("every n ≥ 1 and g ≥ 0", checkers=["signs of coefficients"])
    return Verdict.unknown("rhs - lhs has coefficients of both signs in n - 1 and e^g - 1")


@rule("wide-normal")
@guarded
def wide_normal(step: Step) -> Verdict:
    """∫ f(λz) φ(z) dz = (I - ϑ M/2λ²)/(λ √(2π)), I = ∫f, M = ∫x² f, 0 ≤ ϑ ≤ 1, for f ≥ 0 with both finite.

    Because 1 - z²/2 ≤ e^(-z²/2) ≤ 1. f must be a rational function of e^(cx); I becomes the integral of a rational
    function of y = e^(cx), whose antiderivative is checked by differentiation. data: "wide", λ, which grows.
    The left side is the integral over z of f(λz) times e^(-z²/2)/√(2π).
    """
    wide = step.data.get("wide")
    integral = step.lhs
    if wide is None or not isinstance(integral, sympy.Integral) or step.relation != "limit":
        return Verdict.unknown("expected the limit of an integral, and data['wide']")
    z, *ends = integral.limits[0]
    if ends != [-sympy.oo, sympy.oo]:
        return Verdict.unknown("the variate runs over the whole line")
    density = sympy.exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi)
    y = sympy.Dummy("y", positive=True)
    f = (integral.function / density).rewrite(sympy.exp)
    f = f.replace(lambda x: isinstance(x, sympy.exp), lambda x: y ** sympy.cancel(x.args[0] / (wide * z)))
    f = sympy.cancel(sympy.together(f))
    if f.has(z, wide):
        return Verdict.unknown("the integrand is not a rational function of e^(λz) times the normal density")
    antiderivative = sympy.integrate(sympy.apart(f / y, y), y)
    slope = sympy.fraction(sympy.together(antiderivative.diff(y) - f / y))[0]
    if not sympy.Poly(sympy.expand(slope), y).is_zero:
        return Verdict.unknown("no antiderivative was found that survives differentiation")
    if antiderivative.has(sympy.log):
        return Verdict.unknown("the antiderivative has a logarithm")
    area = sympy.limit(antiderivative, y, sympy.oo) - antiderivative.subs(y, 0)
    if not sympy.expand(step.rhs * wide * sympy.sqrt(2 * sympy.pi) - area).is_zero:
        stated = sympy.cancel(step.rhs * wide)
        if stated.has(wide):
            return Verdict.unknown(f"λ times the right side is not shown to be free of λ: {stated}")
        known = area / sympy.sqrt(2 * sympy.pi)
        return at_points(known, stated, [{}], f"λ times the left side tends to {known}", area=str(area))
    return with_stated_error(step, Verdict.proved("λ → ∞; the limit bounds the left side from above", area=str(area)))


@rule("sparsemax-gap")
@guarded
def sparsemax_gap(step: Step) -> Verdict:
    """A sparsemax row keeps one key exactly when its top gap is at least 1 (Martins and Astudillo 2016, section 2.2).

    The support has more than one key iff 1 + 2 x_(2) > x_(1) + x_(2). For scores N(0, v) the gap is √v times that of
    standard normals. Left: the symbol P(one key); right: GapTail(1/√v, n).
    """
    if step.rhs != GapTail(1 / sympy.sqrt(V), N):
        return Verdict.unknown("expected the tail of the standard normal gap at 1/√v")
    return Verdict.proved("every n ≥ 2 and v > 0")


@rule("sparsemax-tie")
@guarded
def sparsemax_tie(step: Step) -> Verdict:
    """√v E(|support| - 1) → mu_n for sparsemax, as v → ∞ at fixed n ≥ 2; |support| - 1 is its ‖J‖_F².

    By the argument of `near-tie`: the support exceeds one key iff the top gap is below 1, it is then two keys but for
    rows with two small gaps (probability of order 1/v), and the gap has density mu_n/√v near 0. On its support of size
    k sparsemax is a projection with J = I - 11ᵀ/k, so ‖J‖_F² = k - 1.
    """
    if step.relation != "limit" or step.lhs != sympy.sqrt(V) * SPARSE_JACOBIAN:
        return Verdict.unknown("expected √v times the mean of ‖J‖_F² of sparsemax")
    if step.rhs.has(V):
        return Verdict.unknown("the right side depends on v, which tends to infinity")
    if sympy.expand(step.rhs - mu(N)) != 0:
        return at_points(mu(N), step.rhs, [{N: 2}, {N: 3}], "the limit is mu(n)")
    return Verdict.proved("v → ∞ at every fixed n ≥ 2")


@rule("log-rational")
@guarded
def log_rational(step: Step) -> Verdict:
    """c log X = g because X = e^(g/c), as rational functions of e^g (c a rational number, X > 0)."""
    factor, log = step.lhs.as_coeff_Mul()
    if not isinstance(log, sympy.log) or not factor.is_Rational or not step.rhs.is_Symbol:
        return Verdict.unknown("expected a rational number times one logarithm, and a symbol")
    e = sympy.Dummy("e", positive=True)

    def in_e(side: Any) -> Any:
        return side.replace(
            lambda x: isinstance(x, sympy.exp), lambda x: e ** sympy.Poly(x.args[0], step.rhs).coeff_monomial(step.rhs)
        )

    argument = in_e(log.args[0])
    if argument.has(step.rhs):
        return Verdict.unknown("the argument of the logarithm is not a rational function of e^g")
    same = _rational(argument, in_e(sympy.exp(step.rhs / factor)))
    return _shown(same, step, "wherever the argument is positive")


@rule("power-of-n")
@guarded
def power_of_n(step: Step) -> Verdict:
    """Both sides are one rational function of n and of powers n^e = e^(e log n) whose exponents are polynomials.

    Each power is a product of n^m over the monomials m of its exponent; those count as symbols of their own.
    """
    parts: dict[Any, Any] = {}

    def split(exponent: Any) -> Any:
        out = sympy.Integer(1)
        for term in sympy.Add.make_args(sympy.expand(exponent)):
            coefficient, monomial = term.as_coeff_Mul()
            if not coefficient.is_Integer:
                raise StatementError(f"n^({term}): expected whole coefficients")
            out *= N**coefficient if monomial == 1 else parts.setdefault(monomial, sympy.Dummy()) ** coefficient
        return out

    def rewrite(side: Any) -> Any:
        side = side.replace(lambda x: isinstance(x, sympy.exp), lambda x: split(sympy.cancel(x.args[0] / sympy.log(N))))
        return side.replace(lambda x: isinstance(x, sympy.Pow) and x.base == N, lambda x: split(x.exp))

    numerator = sympy.fraction(sympy.together(rewrite(step.lhs) - rewrite(step.rhs)))[0]
    gens = sorted(numerator.free_symbols, key=str)
    if sympy.Poly(sympy.expand(numerator), *gens).is_zero if gens else numerator == 0:
        return Verdict.proved("wherever both sides are defined", checkers=["coefficients"])
    return _shown(_rational(step.lhs, step.rhs), step, "wherever both sides are defined")


@rule("rational")
@guarded
def rational(step: Step) -> Verdict:
    """Both sides are one rational function of their symbols (logarithms and roots count as symbols)."""
    return _shown(_rational(step.lhs, step.rhs), step, "wherever both sides are defined")


def _rational(a: Any, b: Any) -> bool:
    """Whether both are one rational function of their symbols, roots and logarithms. False means "not shown"."""
    difference = sympy.together(a - b)
    atoms = sorted(difference.atoms(sympy.log, sympy.exp) | _roots(difference), key=sympy.default_sort_key)
    plain = difference.subs({x: sympy.Dummy(f"t{k}", positive=True) for k, x in enumerate(atoms)})
    numerator = sympy.expand(sympy.fraction(sympy.together(plain))[0])
    gens = sorted(numerator.free_symbols, key=str)
    try:
        return bool(sympy.Poly(numerator, *gens).is_zero) if gens else bool(numerator == 0)
    except sympy.PolynomialError:
        return False


def _shown(same: bool, step: Step, scope: str) -> Verdict:
    """Proved, or what numbers say of the statement itself under its own conditions; words refute nothing."""
    if same:
        return Verdict.proved(scope, checkers=["coefficients"])
    return refuted(step.lhs, step.rhs, "=", step.assumptions) or Verdict.unknown(
        "the two sides are not one rational function of their symbols, roots and logarithms"
    )


def _roots(expression: Any) -> set[Any]:
    return {x for x in expression.atoms(sympy.Pow) if x.exp.is_Rational and not x.exp.is_Integer}
