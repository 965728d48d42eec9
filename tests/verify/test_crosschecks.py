"""Cross-checks: every mutant of a formula is refused, and so is every mutant of compute.

That every claim agrees is shown by the main job's run in test_reporting.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import compute
import derive
from derive.assumptions import AtLeast, Defined, Distinct, InRange, Ordered, Positive, ZeroOne
from derive.language import Diff, array, index, scalar, size, total
from derive.source import HERE
from derive.step import Step
from verify.crosschecking import counterparts
from verify.crosschecking.arithmetic import Digits, Rounded, Unsupported
from verify.crosschecking.counterparts import COUNTERPARTS
from verify.crosschecking.draws import draw, signature
from verify.crosschecking.evaluation import Evaluation
from verify.crosschecks import crosscheck

n, m = size("n"), size("m")
i, j, l = index("i"), index("j"), index("l")
x, y = array("x", n), array("y", n)


def claim_of(lhs: Any, rhs: Any, *assumptions: Any, relation: Any = "=") -> derive.Claim:
    steps = (Step(lhs, rhs, "never run"),)
    return derive.Claim(
        "test.claim", {"en": "a", "ja": "b"}, lhs, rhs, HERE, steps, relation=relation, assumptions=assumptions
    )


# -- mutants of the claims' formulas ------------------------------------------------------------------------------


def mutants(expr: Any) -> dict[str, Any]:
    """Wrong versions of a right side, each a fault people make."""
    found: dict[str, Any] = {"sign": -expr, "twice": 2 * expr, "a little off": expr * (1 + sympy.Rational(1, 10**12))}
    d_k = size("d_k")
    if expr.has(d_k):
        swapped = expr.replace(lambda e: e == sympy.sqrt(d_k), lambda e: d_k)
        swapped = swapped.replace(lambda e: e == 1 / sympy.sqrt(d_k), lambda e: 1 / d_k)
        if swapped != expr:
            found["d_k for its root"] = swapped
    if expr.has(sympy.exp):
        found["exp of the negative"] = expr.replace(sympy.exp, lambda a: sympy.exp(-a))
    if expr.has(sympy.KroneckerDelta):
        found["no delta"] = expr.replace(sympy.KroneckerDelta, lambda *a: sympy.S.Zero)
        found["delta everywhere"] = expr.replace(sympy.KroneckerDelta, lambda *a: sympy.S.One)
    sums = expr.atoms(sympy.Sum)
    for s in sums:
        binder, low, high = s.limits[0]
        found[f"sum over {binder} too short"] = expr.xreplace(
            {s: sympy.Sum(s.function, (binder, low, high - 1), *s.limits[1:])}
        )
        found[f"factor {binder}"] = expr.xreplace({s: s / 2})
    return found


MUTATED = (
    "softmax.jacobian",
    "softmax.frobenius",
    "softmax.entropy",
    "scores.matrix",
    "gradients.dq",
    "gradients.dk",
    "output.matrix",
)


@pytest.mark.parametrize("claim_id", MUTATED)
def test_mutants_of_a_claim_are_refused(claim_id: str) -> None:
    one = derive.claim(claim_id)
    wrong = mutants(one.rhs)
    assert len(wrong) >= 3
    for name, rhs in wrong.items():
        assert rhs != one.rhs, name
        found = crosscheck(dataclasses.replace(one, rhs=rhs), draws=3)
        assert found.exact.status == "differs", (name, found)
        if claim_id in COUNTERPARTS:
            assert found.computed.status == "differs", (name, found)


EXPECTED = (
    "variance.scores",
    "variance.kurtosis",
    "variance.correlated",
    "variance.row_covariance",
)


@pytest.mark.parametrize("claim_id", EXPECTED)
def test_mutants_of_an_expectation_are_refused(claim_id: str) -> None:
    one = derive.claim(claim_id)
    assert crosscheck(one, draws=2).exact.status == "agrees"
    wrong = {"sign": -one.rhs, "one more": one.rhs + 1, "a little off": one.rhs * (1 + sympy.Rational(1, 10**40))}
    for s in one.rhs.free_symbols:
        wrong[f"without {s}"] = one.rhs.xreplace({s: sympy.S.One})
        wrong[f"{s} squared"] = one.rhs.xreplace({s: s**2})
    for name, rhs in wrong.items():
        found = crosscheck(dataclasses.replace(one, rhs=rhs), draws=4)
        assert found.exact.status == "differs", (name, found)


def test_gauss_rules_have_the_moments_they_are_made_of() -> None:
    from verify.crosschecking.expectations import _central, gauss_rule

    context = mpmath.MPContext()
    context.dps = 60
    normal = _central(context, [1] + [0] * 8)
    assert [int(x) for x in normal[:9]] == [1, 0, 1, 0, 3, 0, 15, 0, 105]
    for degree in (1, 2, 4, 8):
        rule = gauss_rule(context, normal, degree)
        assert len(rule) == degree // 2 + 1
        for power in range(degree + 1):
            found = context.fsum(w * x**power for w, x in rule)
            assert abs(found - normal[power]) < context.mpf(10) ** -45
    signs = gauss_rule(context, [1, 0, 1, 0, 1, 0, 1], 4)
    assert sorted(float(x) for _, x in signs) == [-1.0, 1.0]  # fewer points, as the law has
    with pytest.raises(Unsupported, match="no law"):
        gauss_rule(context, [1, 0, 1, 0, context.mpf("0.5"), 0, 0], 4)


def test_an_error_of_one_part_in_ten_to_the_forty_is_seen() -> None:
    one = claim_of(total(x[l], l, n), total(x[l], l, n) * (1 + sympy.Rational(1, 10**40)), AtLeast(n, 1))
    assert crosscheck(one).exact.status == "differs"


def test_relations_are_told_apart() -> None:
    square = total(x[l] ** 2, l, n)
    assert crosscheck(claim_of(sympy.S.Zero, square, relation="<=")).exact.status == "agrees"
    assert crosscheck(claim_of(square, sympy.S.Zero, relation="<=")).exact.status == "differs"
    assert crosscheck(claim_of(square, square, relation="<=")).exact.status == "agrees"
    assert crosscheck(claim_of(square, square, relation="<")).exact.status == "differs"
    assert crosscheck(claim_of(square, square, relation="limit")).exact.status == "skipped"


# -- mutants of compute -------------------------------------------------------------------------------------------


def wrong_forward(change: Callable[..., Any]) -> Callable[..., Any]:
    right = compute.attention

    def run(q: Any, k: Any, v: Any, spec: Any, **told: Any) -> Any:
        return change(right, q, k, v, spec, **told)

    return run


FORWARD: dict[str, tuple[str, Callable[..., Any]]] = {
    "scale left out": ("output.matrix", lambda f, q, k, v, s, **t: f(q, k, v, s.with_(scale=1.0), **t)),
    "scaled by 1/d_k": ("output.matrix", lambda f, q, k, v, s, **t: f(q, k, v, s.with_(scale=1 / q.shape[1]), **t)),
    "keys reversed": ("output.matrix", lambda f, q, k, v, s, **t: f(q, k[::-1], v, s, **t)),
    "computed in float32": (
        "output.matrix",
        lambda f, q, k, v, s, **t: f(*(a.astype(np.float32) for a in (q, k, v)), s, **t).astype(np.float64),
    ),
    "one part in 1e12 off": ("output.matrix", lambda f, q, k, v, s, **t: f(q, k, v, s, **t) * (1 + 1e-12)),
    "mask ignored": ("masks.removed_key", lambda f, q, k, v, s, **t: f(q, k, v, s)),
    "mask inverted": (
        "masks.removed_key",
        lambda f, q, k, v, s, **t: f(q, k, v, s, **{**t, "mask": ~t["mask"]} if "mask" in t else t),
    ),
    "sink ignored": ("masks.sink_output", lambda f, q, k, v, s, **t: f(q, k, v, s)),
    "log-sum-exp to base 2": ("online.lse", lambda f, q, k, v, s, **t: f(q, k, v, s.with_(lse_base=2.0), **t)),
}


@pytest.mark.parametrize("name", FORWARD)
def test_mutants_of_the_forward_pass_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claim_id, change = FORWARD[name]
    assert crosscheck(claim_id, draws=4).computed.status == "agrees"
    monkeypatch.setattr(compute, "attention", wrong_forward(change), raising=False)
    assert crosscheck(claim_id, draws=4).computed.status == "differs"


BACKWARD: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "dq not scaled": ("gradients.dq", lambda g: {"dq": g.dq * 1.5}),
    "dk of the wrong sign": ("gradients.dk", lambda g: {"dk": -g.dk}),
    "dv shifted by a key": ("gradients.dv", lambda g: {"dv": np.roll(g.dv, 1, axis=0) + 1e-9}),
    "dscale forgotten": ("gradients.dscale", lambda g: {"dscale": 0.0}),
    "dx through a rounded dq": ("gradients.dx", lambda g: {"dq": g.dq.astype(np.float32).astype(np.float64)}),
    "dw from dk": ("gradients.dwq", lambda g: {"dq": g.dq * (1 - 1e-11)}),
    "softmax without its mean": ("softmax.jacobian", lambda g: {"dk": g.dk + 1e-13}),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_mutants_of_the_backward_pass_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claim_id, change = BACKWARD[name]
    right = compute.attention_backward

    def run(*given: Any, **told: Any) -> Any:
        got = right(*given, **told)
        return dataclasses.replace(got, **change(got))

    monkeypatch.setattr(compute, "attention_backward", run, raising=False)
    assert crosscheck(claim_id, draws=4).computed.status == "differs"


@pytest.mark.parametrize(
    ("claim_id", "name"),
    [("softmax.frobenius", "jacobian_norm"), ("softmax.entropy", "entropy"), ("softmax.trace", "participation")],
)
def test_mutants_of_the_observables_are_refused(claim_id: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from compute import observables

    right = observables.OBSERVABLES[name]
    wrong = dataclasses.replace(right, measure=lambda s: right.measure(s) * (1 + 1e-11))
    monkeypatch.setitem(observables.OBSERVABLES, name, wrong)
    assert crosscheck(claim_id, draws=3).computed.status == "differs"


def test_a_mutant_of_the_operation_tree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from derive.printing import tree

    right = tree.operation_tree

    def wrong(*given: Any, **told: Any) -> dict[str, Any]:
        made = right(*given, **told)
        return {**made, "body": ["mul", made["body"], ["num", 10**12 + 1, 10**12]]}

    monkeypatch.setattr(tree, "operation_tree", wrong)
    assert crosscheck("softmax.jacobian").formula.status == "differs"


# -- what is skipped is said ------------------------------------------------------------------------------------


def test_laws_of_whole_matrices_are_skipped_with_the_reason() -> None:
    found = crosscheck("variance.init_orthogonal")
    assert found.exact.status == "skipped"
    assert "single entries" in found.exact.detail


def test_unknown_claims_and_nodes() -> None:
    with pytest.raises(
        derive.errors.UnknownClaim if hasattr(derive, "errors") else Exception, match=r"softmax\.jacobian"
    ):
        crosscheck("softmax.jacobien")
    odd = claim_of(sympy.Function("f")(x[0]), x[0], AtLeast(n, 1))
    assert crosscheck(odd).exact.status == "skipped"


# -- the evaluation itself ----------------------------------------------------------------------------------------


def evaluation(arrays: dict[str, Any], sizes: dict[str, Any], *definitions: Defined, digits: int = 60) -> Evaluation:
    context = mpmath.MPContext()
    context.dps = digits
    entries = {name: {(k,): v for k, v in enumerate(values)} for name, values in arrays.items()}
    return Evaluation(Digits(context), entries, sizes, definitions)


def test_sums_are_inclusive_and_empty_ones_are_zero() -> None:
    run = evaluation({"x": [1.0, 2.0, 4.0]}, {"n": 3})
    assert run.value(total(x[l], l, n)) == 7
    assert run.value(sympy.Sum(x[l], (l, 1, 1))) == 2
    assert run.value(sympy.Sum(x[l], (l, 2, 1))) == 0
    assert run.value(sympy.Product(x[l], (l, 2, 1))) == 1


def test_a_bound_index_hides_a_free_one_of_the_same_name() -> None:
    run = evaluation({"x": [1.0, 2.0, 4.0]}, {"n": 3})
    assert run.value(x[i] * total(x[i], i, n), {i: 2}) == 28
    # d/dx[i] of Σ_i x_i² is 2 x_i of the free i, not of the binder.
    assert abs(run.value(Diff(total(x[i] ** 2, i, n), x[i]), {i: 1}) - 4) < 1e-10


def test_derivatives_of_derivatives() -> None:
    run = evaluation({"x": [0.5, 0.25]}, {"n": 2}, digits=900)
    cubic = x[0] ** 3 * x[1]
    assert abs(run.value(Diff(Diff(cubic, x[0]), x[1])) - mpmath.mpf("0.75")) < mpmath.mpf(10) ** -50
    assert abs(run.value(Diff(Diff(cubic, x[0]), x[0])) - mpmath.mpf("0.75")) < mpmath.mpf(10) ** -50


def test_derivative_through_an_abbreviation() -> None:
    square = array("sq", n)
    run = evaluation({"x": [3.0, 5.0]}, {"n": 2}, Defined(square, (j,), x[j] ** 2), digits=300)
    assert abs(run.value(Diff(total(square[l], l, n), x[i]), {i: 1}) - 10) < 1e-50
    assert abs(run.value(Diff(total(square[l], l, n), square[i]), {i: 1}) - 1) < 1e-50


def test_reading_outside_an_array_is_said() -> None:
    run = evaluation({"x": [1.0]}, {"n": 1})
    with pytest.raises(Unsupported, match="outside"):
        run.value(x[n])


@settings(max_examples=60)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.lists(st.floats(0.25, 3), min_size=2, max_size=6))
def test_float64_stays_within_the_rounding_bound(a: list[float], b: list[float]) -> None:
    size_ = min(len(a), len(b))
    u, w = np.array(a[:size_]), np.array(b[:size_])
    context = mpmath.MPContext()
    context.dps = 60
    entries = {"x": {(k,): float(v) for k, v in enumerate(u)}, "y": {(k,): float(v) for k, v in enumerate(w)}}
    run = Evaluation(Rounded(context), entries, {"n": size_})
    exps = total(sympy.exp(x[l]), l, n)
    cases = {
        total(x[l] * y[l], l, n): lambda: float(np.dot(u, w)),
        exps: lambda: float(np.exp(u).sum()),
        sympy.log(exps): lambda: float(np.log(np.exp(u).sum())),
        total(sympy.exp(x[l]) * x[l], l, n) / exps: lambda: float((np.exp(u) * u).sum() / np.exp(u).sum()),
        sympy.sqrt(total(x[l] ** 2 + y[l], l, n)): lambda: float(np.sqrt((u**2 + w).sum())),
        total(y[l] ** -3, l, n): lambda: float((w**-3.0).sum()),
        total(sympy.tanh(x[l] / y[l]), l, n): lambda: float(np.tanh(u / w).sum()),
        total(sympy.sin(x[l]) * sympy.cos(y[l]), l, n): lambda: float((np.sin(u) * np.cos(w)).sum()),
    }
    for expr, program in cases.items():
        value, bound = run.value(expr)
        assert abs(context.mpf(program()) - value) <= bound + context.mpf(2) ** -1074, expr
        # A bound that nothing could break would be worth nothing.
        assert bound <= 1e-12 * max(1, float(abs(value)) * 100), expr


def test_bound_refuses_what_it_cannot_bound() -> None:
    context = mpmath.MPContext()
    context.dps = 60
    run = Evaluation(Rounded(context), {"x": {(0,): 0.1, (1,): -0.1}}, {"n": 2})
    # 0.1 − 0.1 is 0 give or take nothing, but (0.1·3 − 0.3) has a sign that float64 does not know.
    wobbling = total(x[l] * 3, l, n)
    for expr in (1 / wobbling, sympy.log(wobbling), sympy.sqrt(wobbling * x[0])):
        with pytest.raises(Unsupported):
            run.value(expr)


# -- draws ----------------------------------------------------------------------------------------------------------


def stream(replicate: int = 0) -> Any:
    from compute.streams import Stream

    return Stream(0, "draws", replicate)


def test_draws_meet_every_kind_of_assumption() -> None:
    h, mask, g, mu = size("h"), array("mask", n), scalar("g"), scalar("mu", positive=True)
    told = (
        AtLeast(n, 2),
        Ordered(sympy.S.One, h, n - 1),
        InRange(i, 0, n - 1),
        InRange(j, 0, n - 1),
        InRange(l, 0, n - 1),
        Distinct(i, j),
        ZeroOne(mask),
        Positive(g - x[l]),
    )
    sig = signature((x[i] * mask[j] * mu + g * h,), told)
    for replicate in range(30):
        drawn = draw(sig, stream(replicate))
        assert drawn.sizes["n"] >= 2
        assert 1 <= drawn.sizes["h"] <= drawn.sizes["n"] - 1
        assert set(np.unique(drawn.arrays["mask"])) <= {0.0, 1.0}
        assert drawn.scalars["mu"] > 0
        assert drawn.scalars["g"] > drawn.arrays["x"].max()
        assert all(at[i] != at[j] for at in drawn.places)
        # l is spoken of by an assumption alone: it holds for every l, and is no axis of the statement.
        assert all(set(at) == {i, j} for at in drawn.places)


def test_impossible_assumptions_are_said() -> None:
    with pytest.raises(Unsupported, match="no drawn"):
        draw(signature((x[0],), (AtLeast(n, 9),)), stream())


def test_counterparts_name_claims_that_exist() -> None:
    ids = {c.id for c in derive.claims()}
    assert set(COUNTERPARTS) <= ids
    assert counterparts.UNIT == 2.0**-53
