"""Rules for limits of means over a random row: bounds, squeezing, near ties, many keys, the frozen law.

Guarantees: each rule's docstring is the theorem it applies, with its conditions; the rule computes the constant itself
(exact integrals of polynomials, moments of the log-normal, partition probabilities) and compares it with the stated
one. A stated relative error (data "error" and "grid") is checked against the oracle besides, and said apart: the limit
is proved, its error is numeric.
Does not: prove how fast a limit is reached.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError
from derive.oracle_rules import grid_of_limit, guarded, with_stated_error
from derive.power_sums import N, V
from derive.refutation import at_points
from derive.row_constants import mu
from derive.row_nodes import DEFINITIONS, LOG_Z, M1, TOP, H, LargeN, RowMean, RowMedian, p
from derive.rules import rule
from derive.step import Step
from derive.verdict import Verdict

_T = sympy.Symbol("t", positive=True)


@rule("gibbs")
@guarded
def gibbs(step: Step) -> Verdict:
    """max x - log n ≤ max x - H ≤ α·x ≤ max x for every row, so their means are ordered alike.

    α·x is a weighted mean of the x_j. H = log Z - α·x with log Z ≥ max x gives α·x ≥ max x - H, and H ≤ log n. The
    mean of max x over n scores N(0, v) is √v mu_n by the definition of mu_n.
    """
    chain = [
        sympy.sqrt(V) * mu(N) - sympy.log(N),
        sympy.sqrt(V) * mu(N) - RowMean(H, N, V),
        RowMean(M1, N, V),
        sympy.sqrt(V) * mu(N),
    ]
    if step.relation != "<=":
        return Verdict.unknown("the rule orders two sides: expected <=")
    for low in range(len(chain)):
        for high in range(low + 1, len(chain)):
            factor = _ratio(step.lhs, chain[low])
            if factor is not None and factor == _ratio(step.rhs, chain[high]) and factor.is_positive:
                return Verdict.proved("every n ≥ 1 and v > 0", checkers=["order of the four expressions"])
    return Verdict.unknown("the two sides are not two of the ordered expressions, times one positive factor")


def _ratio(a: Any, b: Any) -> Any:
    """a/b when that is free of n, mu and means, else None. Both are sums; terms are matched by division."""
    root = sympy.Dummy("root", positive=True)
    quotient = sympy.cancel(sympy.expand(a.subs(V, root**2)) / sympy.expand(b.subs(V, root**2))).subs(
        root, sympy.sqrt(V)
    )
    return quotient if not quotient.has(N, mu, RowMean, sympy.log) else None


@rule("squeeze")
@guarded
def squeeze(step: Step) -> Verdict:
    """If c L ≤ c F ≤ c U for all large v, and c L and c U tend to one limit, so does c F.

    The two premises are claims L ≤ F and F ≤ U, c > 0 is read off the step, and both limits are computed.
    """
    from derive.catalogue import claim

    if step.relation != "limit" or len(step.premises) != 2:
        return Verdict.unknown("expected a limit with two premises, the lower and the upper bound")
    lower, upper = (claim(name) for name in step.premises)
    if lower.rhs != upper.lhs:
        return Verdict.unknown("the premises do not bound one and the same expression")
    factor = sympy.cancel(step.lhs / upper.lhs)
    if factor.has(RowMean, RowMedian) or not factor.is_positive:
        return Verdict.unknown("the left side is not a positive multiple of what the premises bound")
    for bound in (lower.lhs, upper.rhs):
        value = _limit_in_root(factor * bound)
        if value is None or sympy.expand(value - step.rhs) != 0:
            return Verdict.unknown(f"the bound {bound} times {factor} tends to {value}, not to {step.rhs}")
    return with_stated_error(step, Verdict.proved("v → ∞ at every fixed n ≥ 1", checkers=["two bounds"]))


def _limit_in_root(expression: Any) -> Any:
    """lim v → ∞ of a polynomial in x = 1/√v: its constant term. None when it is no such polynomial."""
    x = sympy.Dummy("x", positive=True)
    try:
        poly = sympy.Poly(sympy.expand(expression.subs(V, 1 / x**2)), x)
    except sympy.PolynomialError:
        return None
    return poly.coeff_monomial(1) if not poly.has(1 / x) else None


@rule("near-tie")
@guarded
def near_tie(step: Step) -> Verdict:
    """√w E F(softmax(√w z)) → mu_n ∫_0^∞ F(two keys, gap t) dt as the variance w → ∞ at fixed n ≥ 2.

    For F symmetric, 0 at one-hot rows and at most C (1 - α_max)(1 + |log(1 - α_max)|), such as a polynomial in power
    sums that is 0 at p_k = 1, the entropy, and 1 - α_max. Proof: 1 - α_max ≤ Σ_j e^(-gap_j), so only rows whose top gap
    is of order 1/√v count, at which the third key is exponentially small almost surely; the gap of n standard normals
    has a bounded density with value n(n-1)∫φ²Φ^(n-2) = mu_n at 0 (claim `saturation.gap_density`); dominated
    convergence. With α the larger of two weights, dt = dα/(α(1-α)), so for a polynomial the integral is that of a
    polynomial over [1/2, 1]; for the entropy it is -∫_0^1 log α/(1-α) dα = π²/6, for 1 - α_max it is log 2.
    """
    if step.relation != "limit" or len(step.lhs.atoms(RowMean)) != 1:
        return Verdict.unknown("expected the limit of √v RowMean(F, n, v)")
    (mean,) = step.lhs.atoms(RowMean)
    variance = mean.args[2]
    root = sympy.cancel(step.lhs / mean)
    if sympy.expand(root**2 - variance) != 0 or not root.is_positive or mean.args[1] != N or variance.has(N):
        return Verdict.unknown("expected √w times one mean over n scores of variance w")
    try:
        constant = near_tie_constant(mean.args[0])
    except StatementError as error:
        return Verdict.unknown(str(error))
    if step.rhs.free_symbols & variance.free_symbols:
        return Verdict.unknown(f"the right side depends on the variance {variance}, which tends to infinity")
    stated = sympy.cancel(step.rhs / mu(N))
    if stated.free_symbols or sympy.expand(stated - constant) != 0:
        words = f"the limit is {constant} mu(n), not {step.rhs}"
        return at_points(constant * mu(N), step.rhs, [{N: 2}, {N: 3}], words, constant=str(constant))
    return with_stated_error(step, Verdict.proved("v → ∞ at every fixed n ≥ 2", constant=str(constant)))


def near_tie_constant(body: Any) -> Any:
    """∫_0^∞ F dt over two-key rows with gap t. Raises StatementError when F is not of a form the theorem covers."""
    alpha = sympy.Symbol("alpha", positive=True)
    total, polynomial = sympy.Integer(0), sympy.Integer(0)
    kept = {k: v for k, v in DEFINITIONS.items() if k != H}
    expanded = sympy.expand(body.subs(kept))
    # 1 - α_max is written as one unit, so that the constant term belongs to the polynomial only if TOP doesn't use it.
    weight_top = -expanded.coeff(TOP, 1)
    weight_h = expanded.coeff(H, 1)
    rest = sympy.expand(expanded - weight_h * H - weight_top * (1 - TOP))
    if rest.has(TOP, H, LOG_Z, M1):
        raise StatementError(f"{body}: the rule knows polynomials in power sums, the entropy and 1 - max α, linearly")
    for symbol in rest.free_symbols:
        if not (symbol.name.startswith("p_") and symbol.name[2:].isdigit()):
            raise StatementError(f"{body}: {symbol} is no number of the row that the rule knows")
    two = {s: alpha ** int(s.name[2:]) + (1 - alpha) ** int(s.name[2:]) for s in rest.free_symbols}
    polynomial = sympy.Poly(rest.subs(two), alpha)
    quotient, remainder = sympy.div(polynomial, sympy.Poly(alpha * (1 - alpha), alpha))
    if not remainder.is_zero:
        raise StatementError(f"{body} is not 0 at a one-hot row, so its mean times √v has no limit")
    antiderivative = quotient.integrate(alpha)
    total = antiderivative.eval(1) - antiderivative.eval(sympy.Rational(1, 2))
    return sympy.expand(total + weight_h * sympy.pi**2 / 6 + weight_top * sympy.log(2))


@rule("many-keys")
@guarded
def many_keys(step: Step) -> Verdict:
    """Expansion in 1/n at fixed v of a smooth function of the means M_k = (1/n) Σ_j e^(k x_j), to relative order 1/n.

    p_k = n^(1-k) M_k M_1^(-k), log Z = log n + log M_1. E M_k = m_k = e^(k²v/2), and n Cov(M_k, M_l)/(m_k m_l) =
    e^(klv) - 1; so a product of powers r_k has the relative correction (1/n) Σ (½ r_k (r_k - 1) V_kk + …), and log M_1
    has -V_11/2n. The remainder is O(1/n²): all moments exist, negative ones too, as M_1 ≥ e^(mean x).
    """
    if not isinstance(step.lhs, LargeN) or step.lhs.args[1] != N or step.lhs.args[2] != 1:
        return Verdict.unknown("expected LargeN(mean, n, 1)")
    mean = step.lhs.args[0]
    if not isinstance(mean, RowMean) or mean.args[1:] != (N, V):
        return Verdict.unknown("expected the mean over n scores of variance v")
    try:
        known = many_keys_expansion(mean.args[0])
    except StatementError as error:
        return Verdict.unknown(str(error))
    if not _same_in_exponentials(known, step.rhs):
        points = [{N: 16, V: sympy.Rational(1, 2)}, {N: 3, V: 1}]
        return at_points(known, step.rhs, points, f"the expansion is {known}, not {step.rhs}")
    return with_stated_error(step, Verdict.proved("n → ∞ at every fixed v, remainder of relative order 1/n²"))


def many_keys_expansion(body: Any) -> Any:
    """The expansion that the rule `many-keys` states. Terms of the result are kept to relative order 1/n each."""
    e = sympy.exp
    expanded = sympy.expand(body.subs(DEFINITIONS))
    total = sympy.Integer(0)
    for term in sympy.Add.make_args(expanded):
        factor, rest = term.as_coeff_Mul()
        if rest == LOG_Z:
            total += factor * (sympy.log(N) + V / 2 - (e(V) - 1) / (2 * N))
            continue
        if rest == M1:  # E α·x = v (1 - E p_2), by Stein's identity
            total += factor * V * (1 - many_keys_expansion(p(2)))
            continue
        powers: dict[int, Any] = {}
        order = sympy.Integer(0)
        for base, exponent in rest.as_powers_dict().items():
            if base == 1:
                continue
            name = getattr(base, "name", "")
            if not (name.startswith("p_") and name[2:].isdigit()):
                raise StatementError(f"{base} is no power sum, log_Z or α·x")
            k = int(name[2:])
            powers[k] = powers.get(k, 0) + exponent
            powers[1] = powers.get(1, 0) - k * exponent
            order += (k - 1) * exponent
        log_lead = sum((r * sympy.Integer(k) ** 2 / 2 for k, r in powers.items()), sympy.Integer(0))
        correction = sympy.Integer(0)
        items = sorted(powers.items())
        for a, (k, r) in enumerate(items):
            correction += r * (r - 1) / 2 * (e(k * k * V) - 1)
            for l, q in items[a + 1 :]:
                correction += r * q * (e(k * l * V) - 1)
        total += factor * N**-order * e(log_lead * V) * (1 + correction / N)
    return sympy.expand(total)


def _same_in_exponentials(a: Any, b: Any) -> bool:
    """Equality in Q(n)[v, log n][e^v, e^-v], by putting y for e^v and comparing coefficients."""
    y, log_n = sympy.Dummy("y", positive=True), sympy.Dummy("log_n")
    difference = sympy.expand(a - b, power_exp=True)
    replaced = difference.replace(
        lambda x: isinstance(x, sympy.exp), lambda x: y ** sympy.Poly(x.args[0], V).coeff_monomial(V)
    ).subs(sympy.log(N), log_n)
    numerator, _ = sympy.fraction(sympy.together(replaced))
    try:
        return bool(sympy.Poly(sympy.expand(numerator), N, V, y, log_n).is_zero)
    except sympy.PolynomialError:
        return False


@rule("frozen")
@guarded
def frozen(step: Step) -> Verdict:
    """Moments of the Poisson-Dirichlet law PD(m), the weights of a frozen row as n → ∞ with m = σ_c/σ < 1.

    That the weights converge to PD(m) is a theorem for the random energy model (Derrida 1981; Ruelle 1987), here a
    premise. The moments are exact: the partition probability m^(c-1) (c-1)!/(b-1)! Π_i (1-m)_{b_i - 1} for blocks
    b_1 … b_c of b gives E Π p_{k_i} as a sum over the ways of merging blocks (Pitman 1995). For the entropy,
    E H = ψ(1) - ψ(1-m), the derivative in k of E p_k = Γ(k-m)/(Γ(k) Γ(1-m)) at k = 1. The verdict is Numeric: the
    stated form with a finite-n m is put beside the oracle.
    """
    m = step.data.get("m")
    means = step.lhs.atoms(RowMean)
    if step.relation != "limit" or len(means) != 1 or step.lhs not in means or m is None:
        return Verdict.unknown("expected the limit of one mean, and m in the data")
    (mean,) = means
    try:
        known = frozen_value(mean.args[0], sympy.Symbol("m"))
    except StatementError as error:
        return Verdict.unknown(str(error))
    given = known.subs(sympy.Symbol("m"), m)
    if not _same_rational(given, step.rhs, m):
        free = sympy.Symbol("m")  # PD(m) is a law at every 0 < m < 1, which the finite-n form of m stands for
        points = [{free: sympy.Rational(1, 2)}, {free: sympy.Rational(1, 3)}]
        return at_points(known, step.rhs.subs(m, free), points, f"PD(m) gives {known}, not {step.rhs}")
    return grid_of_limit(step, step.data.get("grid") or ())


def frozen_value(body: Any, m: Any) -> Any:
    """E of a polynomial of degree ≤ 2 in power sums, or of the entropy, under PD(m)."""
    if body == H:
        return sympy.digamma(1) - sympy.digamma(1 - m)
    total = sympy.Integer(0)
    for term in sympy.Add.make_args(sympy.expand(body.subs(DEFINITIONS))):
        factor, rest = term.as_coeff_Mul()
        blocks: list[int] = []
        for base, exponent in rest.as_powers_dict().items():
            if base != 1:
                name = getattr(base, "name", "")
                if not (name.startswith("p_") and name[2:].isdigit() and exponent.is_Integer):
                    raise StatementError(f"{base} is no power sum")
                blocks += [int(name[2:])] * int(exponent)
        if len(blocks) > 2:
            raise StatementError("the rule knows products of at most two power sums")
        merged = [[sum(blocks)]] if blocks else [[]]
        ways = merged + ([blocks] if len(blocks) == 2 else [])
        total += factor * sum((_partition(way, m) for way in ways), sympy.Integer(0))
    return sympy.factor(total)


def _partition(blocks: list[int], m: Any) -> Any:
    if not blocks:
        return sympy.Integer(1)
    value = m ** (len(blocks) - 1) * sympy.factorial(len(blocks) - 1) / sympy.factorial(sum(blocks) - 1)
    for b in blocks:
        value *= sympy.Mul(*(1 - m + i for i in range(b - 1)))
    return value


def _same_rational(a: Any, b: Any, m: Any) -> bool:
    x = sympy.Dummy("m")
    difference = (a - b).subs(m, x)
    digammas = sorted(difference.atoms(sympy.polygamma), key=str)
    plain = difference.subs({d: sympy.Dummy(f"psi{i}") for i, d in enumerate(digammas)})
    numerator, _ = sympy.fraction(sympy.together(plain))
    return bool(sympy.Poly(numerator, *sorted(plain.free_symbols | {x}, key=str)).is_zero)
