"""Rules refute by numbers alone: a true statement in another form never, a false one with a witness.

Each witness is evaluated again here. Its values come from formulas in mpmath, or from another path of the oracle.
"""

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import sympy

import derive
from derive import oracle
from derive.families import _moments as moment_words
from derive.gap_integrals import gap_mean
from derive.interval_numbers import Interval
from derive.moments.nodes import Expect
from derive.power_sums import N, V
from derive.prover import refuted
from derive.refutation import Separation, at_points, enclosure
from derive.row_constants import freezing, mu
from derive.row_nodes import COS, J2, M1, CosMean, H, HeadMean, RowMean, p
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind, Verdict

# 1, in a form that no comparison of coefficients sees through.
ONE = sympy.sin(1) ** 2 + sympy.cos(1) ** 2


def step_of(claim_id: str) -> Step:
    return derive.claim(claim_id).steps[-1]


def verdict_with(claim_id: str, rhs: Any) -> Verdict:
    return check_step(dataclasses.replace(step_of(claim_id), rhs=rhs))


def mp_mu(n: int) -> Any:
    """The mean of the largest of n standard normals, from its density."""
    return mpmath.quad(lambda x: x * n * mpmath.npdf(x) * mpmath.ncdf(x) ** (n - 1), [-12, -4, 0, 4, 12])


def mp_acosh(x: Any) -> Any:
    return mpmath.acosh(x)


def numbers_of(point: Any) -> dict[str, Any]:
    return {name: mpmath.mpf(Fraction(value).numerator) / Fraction(value).denominator for name, value in point.items()}


def inside(value: Any, ends: tuple[str, str]) -> bool:
    """Whether an independent number lies in the interval, give or take the rounding of this check itself."""
    room = mpmath.mpf(10) ** -9 * (1 + abs(value))
    return bool(mpmath.mpf(ends[0]) - room <= value <= mpmath.mpf(ends[1]) + room)


SPHERE = "alternatives.qk_norm_kurtosis"
# For each rule: a claim, the left side's value at a point (or what the rule compares instead), the right side's
# value there, both from scratch.
EVALUATED: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "sparsemax-tie": (
        "alternatives.sparsemax_jacobian",
        lambda n: mp_mu(int(n)),
        lambda n: mp_mu(int(n)),
    ),
    "near-tie-share": (
        "saturation.saturated_fraction",
        lambda n, epsilon: mp_mu(int(n)) * mp_acosh(1 / epsilon - 1),
        lambda n, epsilon: mp_mu(int(n)) * mp_acosh(1 / epsilon - 1),
    ),
    "near-tie": (
        "saturation.entropy_large_sigma",
        lambda n: mp_mu(int(n)) * mpmath.pi**2 / 6,
        lambda n: mp_mu(int(n)) * mpmath.pi**2 / 6,
    ),
    "two-rows": (
        "depth.overlap_large_n",
        lambda rho, v: mpmath.exp(rho * v),
        lambda rho, v: mpmath.exp(rho * v),
    ),
    "wide-normal": (
        "alternatives.softcap_slope",
        lambda: mpmath.quad(lambda x: mpmath.sech(x) ** 4, [-30, 0, 30]) / mpmath.sqrt(2 * mpmath.pi),
        lambda: 2 * mpmath.sqrt(2) / (3 * mpmath.sqrt(mpmath.pi)),
    ),
    "sphere": (
        SPHERE,
        lambda d_k: _cos_mean(d_k, 4) / _cos_mean(d_k, 2) ** 2,
        lambda d_k: 3 * d_k / (d_k + 2),
    ),
    "frozen": (
        "saturation.frozen_jacobian",
        lambda m: m * (1 - m) / 3,
        lambda m: m * (1 - m) / 3,
    ),
    "many-keys": (
        "saturation.p2_large_n",
        lambda n, v: mpmath.exp(v) / n * (1 - (mpmath.exp(v) - 1) * (2 * mpmath.exp(v) - 1) / n),
        lambda n, v: mpmath.exp(v) / n * (1 - (mpmath.exp(v) - 1) * (2 * mpmath.exp(v) - 1) / n),
    ),
    "gradient-traces": (
        "saturation.gradient_q",
        lambda n, d_k, s: mpmath.mpf(float(oracle.expect("gradient_q", n, d_k=d_k, scale=s).value)),
        lambda n, d_k, s: mpmath.mpf(float(oracle.expect("gradient_q", n, d_k=d_k, scale=s).value)),
    ),
}


def _cos_mean(d: Any, power: int) -> Any:
    """E cos^power of the angle between two random directions: the density is (1 - c²)^((d - 3)/2) for d ≥ 2."""

    def weigh(k: int) -> Any:
        # c = sin(a): (1 - c²)^((d - 3)/2) dc = cos(a)^(d - 2) da.
        return mpmath.quad(lambda a: mpmath.sin(a) ** k * mpmath.cos(a) ** (d - 2), [-mpmath.pi / 2, mpmath.pi / 2])

    return weigh(power) / weigh(0)


@pytest.mark.parametrize("rule", EVALUATED)
@pytest.mark.parametrize("factor", [Fraction(2), Fraction(9, 8), Fraction(-1), Fraction(1, 2)])
def test_a_false_side_has_a_witness_that_can_be_evaluated_again(rule: str, factor: Fraction) -> None:
    claim_id, left, right = EVALUATED[rule]
    step = step_of(claim_id)
    assert step.rule == rule
    verdict = check_step(dataclasses.replace(step, rhs=sympy.Rational(factor) * step.rhs))
    assert verdict.kind is Kind.REFUTED, verdict
    witness = verdict.evidence["witness"]
    assert isinstance(witness, Separation)
    at = numbers_of(witness.point)
    assert inside(left(**at), witness.lhs)
    assert inside(mpmath.mpf(factor.numerator) / factor.denominator * right(**at), witness.rhs)
    low, high = sorted((witness.lhs, witness.rhs), key=lambda ends: mpmath.mpf(ends[0]))
    assert mpmath.mpf(low[1]) < mpmath.mpf(high[0])


@pytest.mark.parametrize("rule", EVALUATED)
def test_a_true_side_in_another_form_is_not_refuted(rule: str) -> None:
    claim_id = EVALUATED[rule][0]
    assert verdict_with(claim_id, ONE * step_of(claim_id).rhs).kind is not Kind.REFUTED


def other_forms() -> list[tuple[str, Any]]:
    """True statements as one might write them, which have other coefficients or other functions."""
    epsilon = next(s for s in step_of("saturation.saturated_fraction").rhs.free_symbols if s.name == "epsilon")
    far = 1 / epsilon - 1
    rho = next(s for s in step_of("depth.overlap_large_n").rhs.free_symbols if s.name == "rho")
    grown = sympy.exp(rho * V)
    gradient = step_of("saturation.gradient_scores").rhs
    written_out = HeadMean(p(2) - 2 * p(3) + p(2) ** 2, *gradient.args[1:])
    entropy = step_of("saturation.entropy_small_sigma").rhs
    return [
        ("alternatives.sparsemax_jacobian", sympy.sqrt(mu(N) ** 2)),
        ("saturation.saturated_fraction", mu(N) * sympy.log(far + sympy.sqrt(far**2 - 1))),
        ("depth.overlap_large_n", ((1 + grown) ** 2 - 1 - grown**2) / 2),
        ("depth.overlap_large_n", sympy.cosh(rho * V) + sympy.sinh(rho * V)),
        ("saturation.gradient_scores", written_out),
        ("saturation.entropy_small_sigma", entropy.subs(sympy.log(N), sympy.log(N**2) / 2)),
        ("saturation.frozen", step_of("saturation.frozen").rhs * sympy.sqrt(mu(N) ** 2) / mu(N)),
        ("saturation.two_keys_trace", step_of("saturation.two_keys_trace").rhs * ONE),
        ("saturation.gradient_v_own_key", step_of("saturation.gradient_v_own_key").rhs * ONE),
        ("alternatives.qk_norm_bound", 2 * step_of("alternatives.qk_norm_bound").rhs),
        ("alternatives.self_term", step_of("alternatives.self_term").rhs * ONE),
        ("alternatives.qk_norm_gain", step_of("alternatives.qk_norm_gain").rhs * ONE),
    ]


@pytest.mark.parametrize(("claim_id", "rhs"), other_forms())
def test_another_form_of_a_true_side_is_not_refuted(claim_id: str, rhs: Any) -> None:
    assert verdict_with(claim_id, rhs).kind is not Kind.REFUTED


def test_a_mean_that_only_steins_identity_shows_is_not_refuted_by_linearity() -> None:
    step = Step(RowMean(M1, N, V), V * (1 - RowMean(p(2), N, V)), "row-mean")
    assert check_step(step).kind is Kind.UNKNOWN
    assert check_step(dataclasses.replace(step, rule="stein")).kind is Kind.PROVED


@pytest.mark.parametrize(("rule", "lhs", "rhs"), [
    ("row-mean", RowMean(J2, N, V), RowMean(p(2) - 2 * p(3), N, V)),
    ("stein", RowMean(M1, N, V), V * (1 + RowMean(p(2), N, V))),
    ("heat-flow", sympy.Derivative(RowMean(p(2), N, V), V), RowMean(p(2) - 4 * p(3) + 2 * p(2) ** 2, N, V)),
])  # fmt: skip
def test_unequal_means_show_in_a_taylor_coefficient_at_one_n(rule: str, lhs: Any, rhs: Any) -> None:
    """The coefficient is taken again from differences of the oracle's values at small v."""
    verdict = check_step(Step(lhs, rhs, rule))
    assert verdict.kind is Kind.REFUTED
    witness, power = verdict.evidence["witness"], verdict.evidence["power"]
    assert isinstance(witness, Separation)
    n = int(witness.point["n"])
    stated = (mpmath.mpf(witness.lhs[0]) + mpmath.mpf(witness.lhs[1])) / 2

    def value(v: float) -> float:
        def mean(body: Any) -> float:
            return float(RowMean(body, n, v).evalf(17))

        if rule == "row-mean":
            return v * (mean(J2) - mean(p(2)) + 2 * mean(p(3)))
        if rule == "stein":
            # α·x has no oracle of its own; H = log Z - α·x has.
            return v * (float(oracle.expect("log_z", n, sigma=v**0.5).value) - mean(H) - v * (1 + mean(p(2))))
        slope = (mean_at(v * 1.001) - mean_at(v * 0.999)) / (0.002 * v)
        return v * (slope - mean(p(2)) + 4 * mean(p(3)) - 2 * mean(p(2) ** 2))

    def mean_at(v: float) -> float:
        return float(RowMean(p(2), n, v).evalf(17))

    small = 1e-3
    assert power in (1, 2)
    assert value(small) / small**power == pytest.approx(float(stated), rel=0.05)


def test_a_wrong_taylor_coefficient_has_its_n() -> None:
    step = step_of("saturation.p2_small_sigma")
    verdict = check_step(dataclasses.replace(step, rhs=step.rhs + V**2 * (N - 2) / N))
    assert verdict.kind is Kind.REFUTED
    witness = verdict.evidence["witness"]
    assert isinstance(witness, Separation)
    assert (witness.point, verdict.evidence["power"]) == ({"n": "3"}, 2)  # at n = 2 the change is 0
    n = 3
    assert inside(mpmath.mpf((n - 6) * (n - 1)) / (2 * n**3), witness.lhs)
    assert inside(mpmath.mpf((n - 6) * (n - 1)) / (2 * n**3) + mpmath.mpf(n - 2) / n, witness.rhs)


def test_two_keys_integrals_are_compared_and_not_their_integrands() -> None:
    step = step_of("saturation.two_keys_trace")
    t = step.rhs.limits[0][0]
    density = sympy.exp(-(t**2) / (4 * V)) / sympy.sqrt(4 * sympy.pi * V)
    odd = (sympy.exp(t) - 1) / (sympy.exp(t) + 1) * density
    pole = (sympy.exp(t) + 1) / (sympy.exp(t) - 1) * density

    def with_integrand(f: Any) -> Verdict:
        return check_step(dataclasses.replace(step, rhs=sympy.Integral(f, *step.rhs.limits)))

    assert with_integrand(step.rhs.function + odd).kind is Kind.PROVED
    assert with_integrand(step.rhs.function + pole).kind is Kind.UNKNOWN
    false = with_integrand(step.rhs.function * sympy.Rational(5, 4))
    assert false.kind is Kind.REFUTED
    witness = false.evidence["witness"]
    assert isinstance(witness, Separation)
    assert witness.point == {"v": "1"}
    value = mpmath.quad(
        lambda x: mpmath.exp(-x * x / 4) / mpmath.sqrt(4 * mpmath.pi) / (1 + mpmath.cosh(x)), [-30, 0, 30]
    )
    assert inside(value, witness.lhs)
    assert inside(value * 5 / 4, witness.rhs)
    # Too near for the enclosure: nothing is said.
    assert with_integrand(step.rhs.function * sympy.Rational(100001, 100000)).kind is Kind.UNKNOWN


@pytest.mark.parametrize("variance", [1, 4])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_gap_means_are_enclosed(variance: int, power: int) -> None:
    e = sympy.Dummy("e", positive=True)
    interval = gap_mean((e / (1 + e)) ** power, e, variance)
    deviation = mpmath.sqrt(2 * variance)
    value = mpmath.quad(
        lambda x: (1 / (1 + mpmath.exp(-x))) ** power * mpmath.npdf(x, 0, deviation), [-40, -4, 0, 4, 40]
    )
    low, high = (mpmath.mpf(end) for end in interval.decimal())
    assert low < value < high
    assert high - low < value / 20


def test_a_bound_is_refuted_only_where_it_is_too_small() -> None:
    step = step_of("alternatives.qk_norm_bound")
    g = step.data["bound"]
    assert verdict_with("alternatives.qk_norm_bound", sympy.S.One).kind is not Kind.REFUTED
    verdict = verdict_with("alternatives.qk_norm_bound", 1 / (1 + N * sympy.exp(-2 * g)))
    assert verdict.kind is Kind.REFUTED
    witness = verdict.evidence["witness"]
    assert isinstance(witness, Separation)
    at = numbers_of(witness.point)
    scores = [at["g"], *[-at["g"]] * (int(at["n"]) - 1)]
    weight = mpmath.exp(scores[0]) / sum(mpmath.exp(x) for x in scores)
    assert weight > mpmath.mpf(witness.rhs[1])
    assert inside(weight, witness.lhs)


@pytest.mark.parametrize(("claim_id", "rhs"), [
    ("alternatives.sparsemax_jacobian", mu(N) + 1 / V),
    ("saturation.jacobian_large_sigma", mu(N) / 3 + mu(N) / V),
    ("saturation.saturated_fraction", step_of("saturation.saturated_fraction").rhs * (1 + 1 / V)),
    ("depth.overlap_large_n", step_of("depth.overlap_large_n").rhs * (1 + 1 / N)),
    ("alternatives.softcap_slope", step_of("alternatives.softcap_slope").rhs
     + step_of("alternatives.softcap_slope").data["wide"] ** -3),
])  # fmt: skip
def test_a_side_that_depends_on_what_tends_to_infinity_is_not_refuted(claim_id: str, rhs: Any) -> None:
    """Such a side may still have the right limit."""
    assert verdict_with(claim_id, rhs).kind is Kind.UNKNOWN


def test_conditions_in_words_refute_nothing() -> None:
    """rho < 1 is told in words: at rho = 2, say, |1 - rho| shows a difference that is none."""
    step = step_of("alternatives.self_term")
    rho = next(s for s in step.rhs.free_symbols if s.name == "rho")
    assert check_step(dataclasses.replace(step, rhs=step.rhs.subs(1 - rho, sympy.Abs(1 - rho)))).kind is Kind.UNKNOWN
    x = sympy.Symbol("x", real=True)
    free = Step(x * (x + 1), x**2, "rational")
    assert check_step(free).kind is Kind.REFUTED
    assert check_step(dataclasses.replace(free, assumptions=("x = 0",))).kind is Kind.UNKNOWN


def test_a_real_number_at_least_something_is_not_drawn_below_it() -> None:
    x = derive.language.scalar("x")
    at_least_two = derive.assumptions.AtLeast(x, 2)
    assert refuted(sympy.Abs(x - 1), x - 1, "=", ()) is not None
    assert refuted(sympy.Abs(x - 1), x - 1, "=", (at_least_two,)) is None
    assert refuted(sympy.Abs(x - 3), x - 3, "=", (at_least_two,)) is not None


def test_growth_is_shown_at_two_sizes() -> None:
    """The witness of "grows without bound": E s⁴ of Gaussian scores is (3 d_k² + 6 d_k) σ_q⁴ σ_k⁴, evaluated here."""
    one = derive.claim("moments.limit_sixth")
    d_k = moment_words.d_k
    growing = dataclasses.replace(one.steps[-1], lhs=Expect(moment_words.SCORE**4) / d_k)
    verdict = check_step(growing)
    assert verdict.kind is Kind.REFUTED
    values, left = verdict.evidence["values"], verdict.evidence["left"]
    assert isinstance(values, dict)
    assert isinstance(left, dict)
    scale = (Fraction(values["sigma_q"]) * Fraction(values["sigma_k"])) ** 4
    assert {n: Fraction(x) for n, x in left.items()} == {n: (3 * int(n) + 6) * scale for n in ("1000", "1000000")}
    assert Fraction(str(verdict.evidence["leading"])) == 3 * scale
    undecided = dataclasses.replace(growing, rhs=d_k * one.rhs)
    assert check_step(undecided).kind is Kind.UNKNOWN


def test_intervals_that_meet_or_symbols_without_a_value_decide_nothing() -> None:
    x = sympy.Symbol("x", real=True)
    assert at_points(mu(N), mu(N) * ONE, [{N: 2}], "no").kind is Kind.UNKNOWN
    assert at_points(mu(N), x * mu(N), [{N: 2}], "no").kind is Kind.UNKNOWN
    assert at_points(mu(N), sympy.Derivative(mu(V), V), [{N: 2}], "no").kind is Kind.UNKNOWN
    assert at_points(CosMean(COS**2, N), 0, [{N: 2}], "no").kind is Kind.UNKNOWN  # no number is known of this mean
    assert at_points(1 / (N - 2), 0, [{N: 2}], "no").kind is Kind.UNKNOWN
    assert at_points(sympy.Integer(1), sympy.Integer(2), [], "no").kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    "node", [mu(5), freezing(64), RowMean(p(2), 8, sympy.Integer(2)), HeadMean(J2, 8, 4, sympy.Rational(1, 2))]
)
def test_what_is_enclosed_is_named_with_an_interval_around_its_number(node: Any) -> None:
    found = enclosure(2 * node, {})
    assert list(found.enclosed) == [str(node)]
    low, high = (mpmath.mpf(end) for end in found.value.decimal())
    assert low < 2 * mpmath.mpf(float(node.evalf(17))) < high
    assert high - low < 1e-8 * high


def test_closed_forms_of_the_largest_normal() -> None:
    for n in (1, 2, 3):
        found = enclosure(mu(N), {N: n})
        assert not found.enclosed
        assert inside(mp_mu(n), found.value.decimal())


def test_an_interval_between_two_numbers_holds_both() -> None:
    between = Interval.between(Fraction(1, 3), Fraction(2, 3))
    assert between.at_most(Interval.of(Fraction(2, 3)) + Interval.of(Fraction(1, 10**30)))
    assert not between.below(Interval.of(Fraction(2, 3)))


def test_false_evidence_for_a_true_statement_refutes_nothing() -> None:
    """A wrong form, factorisation or replacement is a wrong proof: the statement may be true all the same."""
    n, j, k = derive.language.size("n"), derive.language.index("j"), derive.language.index("k")
    x = derive.language.array("x", n)
    s, t = derive.language.scalar("s"), derive.language.scalar("t")
    form = Step(sympy.Limit(s * t, t, 0), sympy.Integer(0), "limit-laws", "limit", data={"form": 2 * s * t})
    assert check_step(form).kind is Kind.UNKNOWN
    assert check_step(dataclasses.replace(form, data={})).kind is Kind.PROVED
    rows = (derive.assumptions.InRange(j, 0, n - 1), derive.assumptions.InRange(k, 0, n - 1))
    factors = {"rows": j, "columns": k, "left": x[j], "right": 2 * x[k], "inner": derive.language.index("l")}
    rank = Step(x[j] * x[k], sympy.Integer(1), "rank-factorisation", "rank", assumptions=rows, data=factors)
    assert check_step(rank).kind is Kind.UNKNOWN
    assert check_step(dataclasses.replace(rank, data={**factors, "right": x[k]})).kind is Kind.PROVED
    same = Step(s - s * t + s * t, sympy.Integer(0) * s + s, "equals-for-equals", data={"old": t, "new": s})
    assert check_step(same).kind is not Kind.REFUTED
    both = Step(t**2 - s**2, 0 * s, "equals-for-equals", data={"old": t, "new": s})
    assert check_step(both).kind is Kind.REFUTED  # the statement itself is false, with a witness


def test_a_number_beyond_a_float_refutes_nothing() -> None:
    x = sympy.Symbol("x", positive=True)
    for relation in ("=", "<="):
        step = Step(10 ** (400 * x), 10 ** (400 * x), "oracle-grid", relation, data={"grid": [{"x": 1.0}]})
        assert check_step(step).kind is Kind.UNKNOWN
    law = Step(10 ** (400 * x), 10 ** (400 * x), "oracle-grid", "limit", data={"grid": [{"x": 1.0}], "error": x / 2})
    assert check_step(law).kind is Kind.UNKNOWN
