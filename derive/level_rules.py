"""Rules for medians, shares and exact integrals: what two keys do exactly, and what the top gap alone decides.

Guarantees: each rule's docstring is the theorem it applies; its algebra is done on rational functions and compared
coefficient by coefficient.
Does not: evaluate a median or a share (the oracle has none for n > 2; the benchmark compares with simulation).

‖J‖_F of two keys with gap t is 1/(1 + cosh t), because p_k = α^k + (1-α)^k, α = 1/(1 + e^-t).
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError
from derive.gap_integrals import gap_mean
from derive.interval_numbers import Undefined
from derive.oracle_rules import guarded, with_stated_error
from derive.power_sums import N, V
from derive.refutation import Enclosure, at_points, separated
from derive.row_constants import gap_median, mu
from derive.row_nodes import DEFINITIONS, NORM_J, H, RowMean, RowMedian, RowShare
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict


@rule("two-keys")
@guarded
def two_keys(step: Step) -> Verdict:
    """At n = 2 a row is a function of the gap t ~ N(0, 2v), so a mean is one integral over t.

    The left side is RowMean(F, 2, v) with F a polynomial in power sums; the right side is the integral over the real
    line of F at α = 1/(1 + e^-t) times e^(-t²/(4v))/√(4πv). The even parts of the two integrands are compared as
    rational functions of e^t after dividing by the density; odd parts without a pole integrate to 0.
    """
    integral = step.rhs
    if not isinstance(step.lhs, RowMean) or step.lhs.args[1:] != (sympy.Integer(2), V):
        return Verdict.unknown("expected RowMean(F, 2, v) on the left")
    if not isinstance(integral, sympy.Integral) or len(integral.limits) != 1:
        return Verdict.unknown("expected one integral on the right")
    t, *ends = integral.limits[0]
    if ends != [-sympy.oo, sympy.oo]:
        return Verdict.unknown("the gap runs over the whole line")
    density = sympy.exp(-(t**2) / (4 * V)) / sympy.sqrt(4 * sympy.pi * V)
    e = sympy.Dummy("e", positive=True)
    terms = [term / density for term in sympy.Add.make_args(integral.function)]
    given = _in_exponential(sympy.Add(*terms), t, e)
    body = step.lhs.args[0].subs({k: x for k, x in DEFINITIONS.items() if k != H})
    power_sums = all(s.name.startswith("p_") for s in body.free_symbols)
    if given is None or given.has(t, V) or not power_sums:
        return Verdict.unknown("an integrand is not a rational function of e^t times the density of the gap")
    alpha = e / (1 + e)
    known = body.subs({s: alpha ** int(s.name[2:]) + (1 - alpha) ** int(s.name[2:]) for s in body.free_symbols})
    difference = known - given
    even = sympy.fraction(sympy.together(difference + difference.subs(e, 1 / e)))[0]
    if not sympy.Poly(sympy.expand(even), e).is_zero:
        return _other_integral(known, given, e)
    if len({c > 0 for c in sympy.Poly(sympy.fraction(given)[1], e).coeffs()}) > 1:
        return Verdict.unknown("the integrand on the right may have a pole on the line")
    return with_stated_error(step, Verdict.proved("n = 2, every v > 0", checkers=["coefficients in e^t"]))


def _other_integral(known: Any, given: Any, e: Any) -> Verdict:
    try:
        left, right = (Enclosure(gap_mean(body, e, 1)) for body in (known, given))
        return separated(left, right, {V: 1}, "the integrals differ at v = 1")
    except (Undefined, StatementError) as error:
        return Verdict.unknown(f"the integrands differ, and not shown is that the integrals do: {error}")


def _in_exponential(expression: Any, t: Any, e: Any) -> Any:
    """The expression with e^t written as e; None when t occurs otherwise."""
    rewritten = sympy.powsimp(sympy.expand(expression.rewrite(sympy.exp), power_exp=False))
    rewritten = rewritten.replace(
        lambda x: isinstance(x, sympy.exp) and sympy.Poly(x.args[0], t).degree() == 1 and not x.args[0].subs(t, 0),
        lambda x: e ** x.args[0].coeff(t),
    )
    rewritten = sympy.cancel(sympy.together(rewritten))
    return None if rewritten.has(t) else rewritten


@rule("median-of-gap")
@guarded
def median_of_gap(step: Step) -> Verdict:
    """Bounds on log ‖J‖_F that depend on the top gap g alone, and so on its median √v gap_median(n).

    Let q = Σ_{j≥2} e^(x_j - x_1), x_1 the largest: e^-g ≤ q ≤ (n-1) e^-g. Then ‖J‖_F ≤ tr J ≤ 2(1 - α_1) ≤ 2q, and
    ‖J‖_F ≥ J_11 = q/(1+q)² ≥ e^-g/n² (q ≥ e^-g, 1 + q ≤ n). Hence
    -g - 2 log n ≤ log ‖J‖_F ≤ -g + log 2(n-1) in every row, and medians keep order and shifts.
    """
    middle = sympy.log(RowMedian(NORM_J, N, V))
    gap = sympy.sqrt(V) * gap_median(N)
    if step.relation != "<=":
        return Verdict.unknown("expected <=")
    if step.rhs == middle:
        spare = sympy.expand(-gap - 2 * sympy.log(N) - step.lhs)
    elif step.lhs == middle:
        spare = sympy.expand(step.rhs + gap - sympy.log(2 * (N - 1)))
    else:
        return Verdict.unknown("expected log of the median of ‖J‖_F on one side")
    if spare.is_zero or (spare.is_number and spare.is_positive):
        return Verdict.proved("every n ≥ 2 and v > 0", checkers=["bounds by the top gap"])
    return Verdict.unknown("the bound stated is not the one that the top gap gives")


@rule("median-of-two")
@guarded
def median_of_two(step: Step) -> Verdict:
    """At n = 2, ‖J‖_F = 1/(1 + cosh t) falls with |t|: its median is its value at the median √v gap_median(2)."""
    t = sympy.sqrt(V) * gap_median(2)
    if step.lhs != RowMedian(NORM_J, 2, V):
        return Verdict.unknown("expected the median of ‖J‖_F at n = 2")
    e = sympy.Dummy("e", positive=True)
    difference = (1 / step.rhs).rewrite(sympy.exp) - (1 + (sympy.exp(t) + sympy.exp(-t)) / 2)
    replaced = difference.subs({sympy.exp(t): e, sympy.exp(-t): 1 / e})
    numerator = sympy.fraction(sympy.together(replaced))[0]
    if replaced.has(V) or not sympy.Poly(sympy.expand(numerator), e).is_zero:
        return Verdict.unknown("the right side is not 1/(1 + cosh(√v gap_median(2)))")
    return Verdict.proved("n = 2, every v > 0")


@rule("near-tie-share")
@guarded
def near_tie_share(step: Step) -> Verdict:
    """√v P(‖J‖_F ≥ ε) → mu_n arcosh(1/ε - 1) as v → ∞ at fixed n ≥ 2, 0 < ε < 1/2.

    By the argument of `near-tie` with F the indicator: with two keys ‖J‖_F = 1/(1 + cosh t) ≥ ε exactly for
    t ≤ arcosh(1/ε - 1), the gap has density mu_n/√v near 0, and the indicator is continuous but at one t.
    """
    if step.relation != "limit":
        return Verdict.unknown("expected a limit")
    shares = step.lhs.atoms(RowShare)
    if len(shares) != 1:
        return Verdict.unknown("expected √v RowShare(‖J‖_F, ε, n, v)")
    (share,) = shares
    level = share.args[1]
    if sympy.cancel(step.lhs / share) != sympy.sqrt(V) or share != RowShare(NORM_J, level, N, V):
        return Verdict.unknown("expected √v RowShare(‖J‖_F, ε, n, v)")
    if step.rhs.has(V):
        return Verdict.unknown("the right side depends on v, which tends to infinity")
    stated = step.rhs / mu(N)
    if isinstance(stated, sympy.acosh):
        numerator = sympy.fraction(sympy.together(stated.args[0] - 1 / level + 1))[0]
        if sympy.expand(numerator) == 0:
            return Verdict.proved("v → ∞ at every fixed n ≥ 2 and 0 < ε < 1/2")
    if not level.is_Symbol:
        return Verdict.unknown("expected a symbol for the level ε")
    points = [{N: n, level: sympy.Rational(1, k)} for n in (2, 3) for k in (4, 10)]
    known = mu(N) * sympy.acosh(1 / level - 1)
    return at_points(known, step.rhs, points, "the level is crossed at a gap of arcosh(1/ε - 1)")


@rule("total-derivative")
@guarded
def total_derivative(step: Step) -> Verdict:
    """∫ f = ∫ g over the real line when f - g = dG/dz and G vanishes at both ends.

    data: "antiderivative", G as an expression in z, phi and Phi (symbols for φ(z) and Φ(z)); dφ/dz = -zφ and
    dΦ/dz = φ are used, and the difference is compared as a polynomial after dividing by the power Φ^(n-2).
    G must carry φ as a factor, so that it vanishes at both ends.
    """
    f, g = _integrand(step.lhs), _integrand(step.rhs)
    antiderivative = step.data.get("antiderivative")
    if f is None or g is None or antiderivative is None:
        return Verdict.unknown("expected two integrals over the real line and data['antiderivative']")
    z, phi, cdf = (sympy.Symbol(x) for x in ("z", "phi", "Phi"))
    slope = antiderivative.diff(z) - z * phi * antiderivative.diff(phi) + phi * antiderivative.diff(cdf)
    base = sympy.Dummy("base")
    reduced = sympy.powsimp(sympy.expand((f - g - slope) / cdf ** (N - 2), power_exp=True))
    reduced = sympy.expand(sympy.powsimp(reduced)).subs(cdf, base)
    vanishing = not sympy.Poly(sympy.expand(antiderivative / cdf ** (N - 1)), phi).coeff_monomial(1)
    if reduced.has(base**N) or not vanishing:
        return Verdict.unknown("the integrands are not polynomials in z, φ, Φ times Φ^(n-2), or G does not vanish")
    if not sympy.Poly(reduced, z, phi, base, N).is_zero:
        return Verdict.unknown("the difference of the integrands is not the derivative of the antiderivative")
    return Verdict.proved("every n ≥ 2", checkers=["coefficients in z, φ, Φ"])


def _integrand(side: Any) -> Any:
    z = sympy.Symbol("z")
    if not isinstance(side, sympy.Integral) or side.limits != (sympy.Tuple(z, -sympy.oo, sympy.oo),):
        return None
    return side.function
