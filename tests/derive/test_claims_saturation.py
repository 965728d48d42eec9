"""Every claim about random rows is accepted, and at least eight mutants of each are refused by its own rule."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import sympy

import derive
from derive.catalogue import Claim
from derive.errors import StatementError
from derive.gradient_nodes import Gradient
from derive.oracle_rules import law_error
from derive.power_sums import N, V
from derive.row_constants import freezing, gap_median, mu
from derive.row_laws import FAMILIES, law_of, laws
from derive.row_nodes import HeadMean, RowMean, SelfMean
from derive.row_numbers import numeric
from derive.rules import check_step
from derive.step import Step
from derive.verdict import Kind

CLAIMS = [one for family in FAMILIES for one in derive.claims(family)]
IDS = [one.id for one in CLAIMS]
PARAMETERS = ("n", "v", "d_k", "d_model", "s", "g", "c", "T", "b", "epsilon", "lambda", "rho", "x", "gamma")
NUMERIC_ONLY = {
    "saturation.log_z_large_sigma",
    "saturation.frozen",
    "saturation.frozen_jacobian",
    "saturation.frozen_entropy",
    "saturation.critical",
    "saturation.critical_jacobian",
    "saturation.critical_entropy",
    "saturation.exponent_low",
    "alternatives.log_n",
    "alternatives.critical_temperature",
    "saturation.exponent_high",
    "saturation.gradient_q_unscaled",
    "saturation.jacobian_unscaled",
    "saturation.gradient_q_scaled",
    "saturation.gradient_q_inverse",
    "saturation.p2_scaled_many_keys",
    "depth.overlap_large_n",
}


@pytest.mark.parametrize("one", CLAIMS, ids=IDS)
def test_claim_is_accepted(one: Claim) -> None:
    verdict = one.prove()
    assert verdict.kind is (Kind.NUMERIC if one.id in NUMERIC_ONLY else Kind.PROVED), str(verdict)


def law_side(step: Step) -> str:
    """The side that states the law: the one without a mean, or the right."""
    if step.rule == "rational-order":
        return "rhs"
    if step.relation == "<=" and not step.lhs.has(RowMean) and step.rhs.has(sympy.Function):
        return "rhs" if step.rhs.is_Function and isinstance(step.rhs, mu) else "lhs"
    return "rhs"


def changed(law: Any) -> Iterator[Any]:
    """Systematic faults: wrong factor, sign, power; dropped and flipped terms; a parameter in the wrong place."""
    n = next((s for s in law.free_symbols if s.name == "n"), N)
    yield from (2 * law, law / 2, -law, law + 1, law * sympy.Rational(3, 2), law**2, law * n, law / n, law * sympy.pi)
    if isinstance(law, sympy.Add):
        yield from (law - term for term in law.args)
        yield from (law - 2 * term for term in law.args)
    for symbol in sorted(law.free_symbols, key=str):
        if symbol.name in PARAMETERS:
            yield from (law.subs(symbol, value) for value in (2 * symbol, symbol**2, symbol + 1, sympy.sqrt(symbol)))
    for good, bad in ((mu, freezing), (freezing, mu), (gap_median, mu)):
        yield law.replace(good, bad)
    yield law.replace(mu, lambda n: sympy.sqrt(2 * sympy.log(n)))  # σ_c for mu_n
    yield law.replace(freezing, lambda n: sympy.sqrt(2 * sympy.log(n)))
    # The head's size for the query's, another setting, a mean of the wrong number.
    for node in law.atoms(RowMean, HeadMean, SelfMean):
        yield law.subs(node, node.func(node.args[0] ** 2, *node.args[1:]))
        yield law.subs(node, node.func(node.args[0], node.args[1] + 1, *node.args[2:]))


def distinguishable(step: Step, side: str, fault: Any) -> bool:
    """False for a fault that is no fault, or one smaller than what a numeric law claims to see."""
    good = getattr(step, side)
    if fault == good or fault.has(sympy.nan, sympy.zoo):
        return False
    if step.rule == "rational-order":  # a weaker bound is no fault: it must fail somewhere
        places = [{"n": n, "g": g} for n in (1.0, 3.0, 50.0) for g in (0.0, 0.3, 2.0)]
        return any(numeric(step.lhs, at) > numeric(fault, at) + 1e-12 for at in places)
    if step.rule not in ("oracle-grid", "two-rows"):
        return sympy.expand(fault - good) != 0
    left = step.lhs
    for point in step.data["grid"]:
        right, allowed = law_error(left, good, step.data["error"], point)
        wrong = numeric(fault, point) / numeric(left, point) - 1
        if abs(wrong) > 1.5 * allowed and abs(wrong - right) > 1e-9:
            return True
    return False


@pytest.mark.parametrize("one", CLAIMS, ids=IDS)
def test_mutants_are_refused(one: Claim) -> None:
    step = one.steps[-1] if not one.steps[-1].rhs.atoms(RowMean) or len(one.steps) == 1 else one.steps[0]
    side = law_side(step)
    refused = 0
    for fault in changed(getattr(step, side)):
        try:
            if not distinguishable(step, side, fault):
                continue
        except (TypeError, StatementError):  # the fault has no number at this point, as 1/0 or a missing size
            continue
        mutant = dataclasses.replace(step, **{side: fault})
        try:
            verdict = check_step(mutant)
        except StatementError:  # an array of two shapes can't be read as a statement at all
            assert one.steps[-1].rule == "normal-form"
            continue
        assert verdict.kind in (Kind.REFUTED, Kind.UNKNOWN), f"accepted {fault}: {verdict}"
        refused += 1
    assert refused >= 8, f"only {refused} mutants of {one.id}"


def test_faults_of_kind() -> None:
    """Faults that a generator would not think of, each by the rule that should see it."""

    def verdict(claim_id: str, **change: Any) -> Kind:
        step = derive.claim(claim_id).steps[-1]
        return check_step(dataclasses.replace(step, **change)).kind

    jacobian = derive.claim("saturation.jacobian_large_sigma")
    for wrong in (
        mu(N),
        mu(N) / 2,
        mu(N) / 4,
        sympy.sqrt(2 * sympy.log(N)) / 3,
        freezing(N) / 3,
        mu(N) / (3 * sympy.sqrt(V)),
    ):
        assert verdict(jacobian.id, rhs=wrong) < Kind.NUMERIC
    # A law that states a smaller error than it has is refused, although its limit is right.
    assert verdict(jacobian.id, data={**jacobian.steps[-1].data, "error": mu(N) / sympy.sqrt(V)}) is Kind.REFUTED
    # The algebraic decay of the mean is no law of the median, nor the reverse.
    median = derive.claim("saturation.median_jacobian")
    assert verdict(median.id, rhs=-mu(N)) < Kind.NUMERIC
    # Without the premises there is nothing to squeeze with.
    assert verdict(median.id, premises=()) is Kind.UNKNOWN
    assert verdict(median.id, premises=("saturation.median_lower", "saturation.trace_upper")) is Kind.UNKNOWN
    # The law for independent inputs is not the law of self-attention from one X.
    shared = derive.claim("saturation.gradient_q_self_attention")
    assert verdict(shared.id, rhs=derive.claim("saturation.gradient_q").rhs) < Kind.NUMERIC
    # Wishart with d_model in place of d_model - 1 degrees of freedom.
    width = sympy.Symbol("d_model", positive=True)
    wrong_dof = shared.rhs.subs(width, width + 1).replace(
        lambda x: isinstance(x, SelfMean), lambda x: x.func(*(a.subs(width, width - 1) for a in x.args))
    )
    assert verdict(shared.id, rhs=wrong_dof) is Kind.REFUTED


def test_the_two_gradients_differ_by_what_the_law_says() -> None:
    """The excess of self-attention over independent inputs is mainly s² (d_k - 1) E (tr J)²/d_model."""
    n, d, width = 64, 64, 4096
    q = next(iter(derive.claim("saturation.gradient_q").lhs.atoms(Gradient))).args[0]
    point = {"n": float(n), "d_k": float(d), "s": d**-0.5, "d_model": float(width)}
    alone = numeric(derive.claim("saturation.gradient_q").lhs, point)
    shared = numeric(derive.claim("saturation.gradient_q_self_attention").lhs, point)
    from derive.oracle import expect

    excess = float(expect("trace_squared", n, d_k=d).value) * (d - 1) / d / width
    assert (shared - alone) == pytest.approx(excess, rel=0.1)
    assert q.name == "q"


@pytest.mark.parametrize("of", ["q", "k", "v", "scores", "w_q", "w_k", "w_v"])
def test_own_key_limit_is_what_the_oracle_adds(of: str) -> None:
    """The oracle takes slopes by the χ² identity; here they are differences of its values in the scale s."""
    one = derive.claim(f"saturation.gradient_{of}_own_key")
    point = {"n": 6.0, "d_k": 5.0, "s": 0.6, "d_model": 1e4}
    s = next(x for x in one.rhs.free_symbols if x.name == "s")
    h = 0.02

    def slope(node: sympy.Derivative) -> sympy.Float:
        f = [numeric(node.expr, {**point, "s": point["s"] + k * h}) for k in (-2, -1, 0, 1, 2)]
        if node.derivative_count == 1:
            return sympy.Float((f[0] - 8 * f[1] + 8 * f[3] - f[4]) / (12 * h))
        return sympy.Float((-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / (12 * h * h))

    assert all(node.variables[0] == s for node in one.rhs.atoms(sympy.Derivative))
    limit = numeric(one.rhs.xreplace({node: slope(node) for node in one.rhs.atoms(sympy.Derivative)}), point)
    assert numeric(one.lhs, point) == pytest.approx(limit, rel=5e-3)


def test_laws_can_be_drawn() -> None:
    found = list(laws())
    assert len(found) >= 25
    for law in found:
        value = law.at(**law.grid[0])
        assert abs(value.law / value.exact - 1) <= value.error + 1e-11, law.claim.id
    with pytest.raises(StatementError, match="states no error"):
        law_of("saturation.stein")


def test_claims_name_what_they_use() -> None:
    for one in CLAIMS:
        assert one.title["en"] != one.title["ja"]
        assert one.assumptions, one.id
        assert str(one.source)
