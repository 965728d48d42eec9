"""The emulated backward pass: attention's own gradients without roundings, and within the tolerance with them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from flint import arb, ctx

import compute
from compute import Rope, Spec
from compute.bounds import Eager, Flash, tolerance
from compute.certificate import certify
from compute.emulate_backward import emulated_attention_backward
from compute.errors import InputError
from compute.roundings import usual
from tests.compute.gradient_attack import attack
from tests.compute.lowprec import F32, eager_backward, flash_backward, quant
from tests.compute.truth import excess, truth

U = 2.0**-53
WIDE = {"weights": "fp64", "accumulate": "fp64", "output": "fp64"}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(31)


@pytest.mark.parametrize(
    "algorithm",
    [Flash(**WIDE, block=3), Eager(**WIDE), Flash(**WIDE, block=2, scale_on="both"), Eager(**WIDE, scale_on="query")],
)
@pytest.mark.parametrize(
    "spec",
    [
        Spec(),
        Spec(causal="bottom-right", softcap=2.0, empty_row="mean"),
        Spec(rope=Rope(), scale=-0.3),
        Spec(window=(2, 1), alibi="distance"),
    ],
)
def test_without_roundings_it_is_the_gradient(rng, algorithm, spec) -> None:
    q, k, v = rng.normal(size=(2, 4, 6, 8)), rng.normal(size=(2, 2, 9, 8)), rng.normal(size=(2, 2, 9, 3))
    go = rng.normal(size=(2, 4, 6, 3))
    mask = rng.random((6, 9)) > 0.4
    mask[2] = False
    given = {"mask": mask, "bias": rng.normal(size=(4, 1, 9)), "dropout_mask": rng.random((6, 9)) * 2}
    given |= {"alibi_slopes": rng.random(4), "key_lengths": np.array([9, 7])}
    if spec.empty_row == "zero":
        given["sink"] = rng.normal(size=4)
    want = compute.attention_backward(go, q, k, v, spec, **given)
    got = emulated_attention_backward(go, q, k, v, spec, algorithm, **given)
    for name in ("dq", "dk", "dv"):
        a, b = getattr(want, name), getattr(got, name)
        assert b.shape == a.shape
        assert abs(a - b).max() <= 1000 * U * abs(a).max()
    v[..., -1, :], k[..., -1, :] = np.nan, np.inf
    hidden = np.arange(9) < 8
    plain = spec.with_(rope=None, causal="none", window=None)
    got = emulated_attention_backward(go, q, k, v, plain, algorithm, mask=hidden)
    want = compute.attention_backward(go, q, k, v, plain, mask=hidden)
    for name in ("dq", "dk", "dv"):
        a, b = getattr(want, name), getattr(got, name)
        assert np.isfinite(b).all()
        assert abs(a - b).max() <= 1000 * U * abs(a).max()


def test_a_flat_call_and_a_value_that_is_seen(rng) -> None:
    q, k, v, go = (rng.normal(size=(5, 4)) for _ in range(4))
    want = compute.attention_backward(go, q, k, v)
    got = emulated_attention_backward(go, q, k, v)
    assert abs(got.dk - want.dk).max() <= 1000 * U * abs(want.dk).max()
    v[2, 1] = np.nan
    for algorithm in (Flash(**WIDE), Eager(**WIDE)):
        assert np.isnan(emulated_attention_backward(go, q, k, v, algorithm=algorithm).dq).all()


def test_it_rounds_where_an_independent_run_does(rng) -> None:
    """Another implementation of the same two algorithms differs by float32's sums and its few crossings of ties."""
    q, k, v, go = (quant(rng.normal(size=(64, 16)), "bfloat16").astype(F32) for _ in range(4))
    for algorithm, other in (
        (Flash(weights="bf16", output="bf16"), flash_backward),
        (Eager(weights="bf16", output="bf16", scores="bf16"), eager_backward),
    ):
        got, want = emulated_attention_backward(go, q, k, v, algorithm=algorithm), other(q, k, v, go, fmt="bfloat16")
        for name in ("dq", "dk", "dv"):
            assert (getattr(got, name) == want[name]).mean() > 0.9


def test_0_violations_of_the_gradient_tolerance() -> None:
    """A short run; `python benchmarks/rigor.py` makes the long one."""
    result = attack(150_000, 4)
    assert result.checks >= 150_000
    assert not result.violations
    assert result.predicted < 0.1 * result.checks
    assert max(result.shares.values()) > 0.8
    assert result.needed == {"weights", "delta", "cast", "sums", "output"}


def test_an_unshifted_softmax_near_underflow_backward() -> None:
    """exp(-86) and below lose bits that only a normaliser in units of 1 accounts for."""
    q, go, v = np.ones((1, 1), F32), np.ones((1, 1), F32), np.array([[1], [-1], [2]], F32)
    k, spec, alg = np.array([[-86], [-87.3], [-88.6]], F32), Spec(scale=1.0), Eager(shifted=False, exp_ulp=1.5)
    got = emulated_attention_backward(go, q, k, v, spec, alg)
    exact = certify(q, k, v, spec, grad_output=go)
    tols = tolerance(q, k, v, spec, alg, grad_output=go).gradients
    assert abs(got.dv - exact.dv.mid).max() > 0.05
    for name in ("dq", "dk", "dv"):
        e = getattr(exact, name)
        assert tols[name].allows(getattr(got, name), e.mid, e.rad).all()
    shifted = tolerance(q, k, v, spec, Eager(), grad_output=go).gradients
    assert shifted["dv"].total.max() < 1e-4


def test_a_coarser_run_is_outside_the_tolerance(rng) -> None:
    q, k, v, go = (quant(rng.normal(size=(32, 16)), "bfloat16") for _ in range(4))
    exact = certify(q, k, v, grad_output=go)
    for alg, wrong in (
        (Flash(output="bf16"), Flash(weights="e4m3", output="bf16")),
        (Eager(), Eager(scores="bf16")),
        (Flash(), Flash(products="tf32")),
    ):
        tols = tolerance(q, k, v, algorithm=alg, grad_output=go).gradients
        for run, fine in ((alg, True), (wrong, False)):
            got = emulated_attention_backward(*(x.astype(F32) for x in (go, q, k, v)), algorithm=run)
            for name in ("dq", "dk"):
                e = getattr(exact, name)
                assert bool(tols[name].allows(getattr(got, name), e.mid, e.rad).all()) == fine, (run, name)


@pytest.mark.parametrize("alg", [usual(*["float64"] * 3)[0], Eager(**WIDE, exp_ulp=1.0), Flash(**WIDE, base2=True)])
def test_float64_algorithms_against_balls(rng, alg) -> None:
    """Forward and gradients of float64 runs; and their bounds are float32's, scaled: not slack by their evaluation."""
    narrow = dataclasses.replace(alg, weights="fp32", accumulate="fp32", output="fp32", exp_flushes=False)
    for spread in (0.0, 1.0, 6.0):
        q, k, v = rng.normal(size=(5, 6)) * spread, rng.normal(size=(23, 6)), rng.normal(size=(23, 2))
        v, go = np.abs(v) if spread else v, rng.normal(size=(5, 2))
        balls = truth(q, k, v, grad_output=go)
        tol = tolerance(q, k, v, algorithm=alg, grad_output=go)
        got = emulated_attention_backward(go, q, k, v, algorithm=alg)
        found = {"z": compute.emulated_attention(q, k, v, algorithm=alg), "dq": got.dq, "dk": got.dk, "dv": got.dv}
        for name, y in found.items():
            t = tol if name == "z" else tol.gradients[name]
            assert not t.overflow.any()
            for i, j in np.ndindex(*y.shape):
                assert excess(balls[name][i, j], float(y[i, j]), float(t.total[i, j])) <= 1, name
        coarse = tolerance(q, k, v, algorithm=narrow, grad_output=go)
        for t, c in ((tol, coarse), *((tol.gradients[x], coarse.gradients[x]) for x in ("dq", "dk", "dv"))):
            # 1/sqrt(6) is itself known to 2 units of float64 only, which float32 does not feel
            assert (t.total <= 1.3 * 2.0**-29 * c.total).all()
            assert (t.total >= 0.5 * 2.0**-29 * np.where(c.total > 1e-40, c.total, 0)).all()


def apart(got: np.ndarray, balls) -> np.ndarray:
    """got − exact, taken at 200 bits."""
    old, ctx.prec = ctx.prec, 200
    try:
        rows, cols = got.shape
        return np.array(
            [[float((arb(float(got[i, j])) - balls[i, j]).mid()) for j in range(cols)] for i in range(rows)]
        )
    finally:
        ctx.prec = old


@pytest.mark.parametrize("alg", [Flash(**WIDE, exp_ulp=1.0), Eager(**WIDE, exp_ulp=1.0)])
def test_the_expected_error_in_float64_is_what_runs_show(rng, alg) -> None:
    """The model holds in float64 too, within 2 of one run's root mean square, forward and backward."""
    for spread in (0.3, 1.0):
        q, k = rng.normal(size=(12, 16)) * spread, rng.normal(size=(96, 16))
        v, go = rng.normal(size=(96, 4)), rng.normal(size=(12, 4))
        balls, got = truth(q, k, v, grad_output=go), emulated_attention_backward(go, q, k, v, algorithm=alg)
        tol = tolerance(q, k, v, algorithm=alg, kind="expected", grad_output=go)
        runs = {"dq": got.dq, "dk": got.dk, "dv": got.dv}
        runs["z"] = compute.emulated_attention(q, k, v, algorithm=alg)
        for name, y in runs.items():
            model = (tol if name == "z" else tol.gradients[name]).total
            ratio = np.sqrt(np.mean(model**2) / np.mean(apart(y, balls[name]) ** 2))
            assert 0.5 < ratio < 2, (name, spread, ratio)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"grad_output": np.ones((3, 2))}, "grad_output has shape"),
        ({"grad_output": np.ones((3, 4), int)}, "grad_output has dtype"),
        ({"grad_output": [[1.0]]}, "array"),
        ({"algorithm": "flash"}, "expected Flash"),
        ({"storage": "fp12"}, "format"),
        ({"q": np.ones((3, 4), int)}, "dtype"),
    ],
)
def test_arguments_are_checked(change, says) -> None:
    given = dict(zip(("grad_output", "q", "k", "v"), [np.ones((3, 4))] * 4, strict=True)) | change
    with pytest.raises(InputError, match=says):
        emulated_attention_backward(**given)


def test_storage_rounds_all_four(rng) -> None:
    q, k, v, go = (rng.normal(size=(6, 4)) for _ in range(4))
    rounded = [compute.round_to(x, "fp16") for x in (go, q, k, v)]
    a = emulated_attention_backward(go, q, k, v, storage="fp16")
    b = emulated_attention_backward(*rounded, algorithm=Flash(weights="fp16", output="fp16"))
    assert (a.dq == b.dq).all()
    assert (a.dv == b.dv).all()
