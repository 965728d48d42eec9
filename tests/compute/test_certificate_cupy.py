"""Certificates of CuPy arrays, on the stand-in: CuPy's functions only, NumPy's bits, what CuPy flushes kept."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import compute
from compute import Spec, canaries, climb, device_arithmetic, outward, tier1, tier1_backward, tier2, tier2_products
from compute import tier1_operands as operands
from compute.arrays import widened
from compute.enclosure import Enclosure
from compute.errors import CanaryFailed, InputError
from compute.heads import split
from compute.table_exp import exp64
from compute.tier1_operands import Settings
from tests.compute import fake_cupy
from tests.compute.battery import battery

CASES = {n: c for n, c in battery() if "rope" not in n and "dropout" not in n and c.spec.rope is None}
CASES = {n: c for n, c in CASES.items() if "dropout_mask" not in c.given and c.q.dtype == np.float64}


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(device_arithmetic, "exps", lambda: (exp64, None))
    monkeypatch.setattr(canaries, "_passed", set(canaries._passed))
    return fake


@pytest.fixture
def like_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host with the settings and the order of sums of the stand-in, so that bits can be compared."""
    for module in (outward, tier1, tier1_backward, tier2, tier2_products):
        monkeypatch.setattr(module, "row_dot", lambda x, y: (x * y).sum(axis=1))
    monkeypatch.setattr(operands.Prepared, "absolute", _absolute)
    monkeypatch.setattr(tier1, "U32", outward.U)
    monkeypatch.setattr(
        climb, "_settings", lambda head, exp, refine: operands.device_settings(Settings(1.0, exp64, refine), head.m)
    )


@property  # type: ignore[misc]
def _absolute(self: operands.Prepared) -> Any:
    scale = outward.column_scale(self.weighted)
    return self.pad(self.weighted * scale), scale


def moved(cupy: Any, value: Any) -> Any:
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


def gradient_for(c: Any) -> Any:
    return np.random.default_rng(5).standard_normal((*c.q.shape[:-1], c.v.shape[-1]))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tier", ["norm", "abs", "tight", "auto"])
def test_a_device_gives_the_bits_of_the_host(cupy: Any, like_a_device: None, name: str, tier: Any) -> None:
    c = CASES[name]
    given = {key: moved(cupy, value) for key, value in c.given.items()}
    grad = gradient_for(c)
    target = "f32" if tier == "auto" else None
    on = compute.certify(
        *(moved(cupy, x) for x in (c.q, c.k, c.v)), c.spec, **given, grad_output=cupy.asarray(grad), tier=tier,
        target=target,
    )  # fmt: skip
    off = compute.certify(*c.args, **c.given, grad_output=grad, tier=tier, target=target)
    assert set(on.enclosures()) == set(off.enclosures())
    for what, mine in on.enclosures().items():
        theirs = off.enclosures()[what]
        assert isinstance(mine.mid, fake_cupy.ndarray), what
        host = mine.host()
        for part in ("mid", "rad", "low"):
            a, b = getattr(host, part), getattr(theirs, part)
            assert (a is None) == (b is None)
            assert a is None or np.array_equal(a, b, equal_nan=True), (what, part)
    assert on.widths() == off.widths()
    assert on.undecided == off.undecided
    assert on.versions["device"] == "stand-in"
    assert any("table exp" in a for a in on.assumptions if a.startswith("A1")) or tier == "tight"


def test_balls_and_ties_reach_a_device(cupy: Any) -> None:
    q, k = np.ones((1, 2)), np.ones((2, 2))
    v = np.array([[1.0], [-1.0]])
    c = compute.certify(*(cupy.asarray(x) for x in (q, k, v)), target="f64")
    value, undecided = c.output.rounded("float64")
    assert not undecided.inner.any()
    assert (value.inner == 0).all()
    pytest.importorskip("flint")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, 4)) for _ in range(3))
    arb = compute.certify(*(cupy.asarray(x) for x in (q, k, v)), tier="arb", grad_output=cupy.asarray(v))
    want = compute.certify(q, k, v, tier="arb", grad_output=v)
    assert np.array_equal(arb.dq.host().mid, want.dq.mid)
    assert np.array_equal(arb.output.host().rad, want.output.rad)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_subnormal_inputs_are_the_numbers_they_are(cupy: Any, dtype: str) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    v = np.array([[tiny, 0], [-3 * tiny, tiny], [0, -tiny], [1, -1]], dtype)
    assert np.array_equal(widened(cupy.asarray(v)).inner, v.astype(np.float64))
    q = np.array([[1.0, 0.5]], dtype)
    k = np.array([[0, 1], [1, 0], [1, 1], [-1, 2]], dtype)
    on = split(*(cupy.asarray(x) for x in (q, k, v))).items[0]
    assert np.array_equal(on.v.inner, v.astype(np.float64))
    c = compute.certify(*(cupy.asarray(x) for x in (q, k, v[:, :1] * 0 + v[:, 1:])))
    assert c.output.host().contains(compute.certify(q, k, v[:, 1:], target="f64").output.mid).all()


def test_subnormal_results_are_rounded_and_met(cupy: Any) -> None:
    exact = np.array([1.5 * 2.0**-149, 2.0**-127, 0.0])
    e = Enclosure(cupy.asarray(exact), cupy.asarray(np.zeros(3)))
    value, undecided = e.rounded("float32")
    assert value.inner.tolist() == exact.astype(np.float32).tolist()
    assert not undecided.inner.any()
    y = cupy.asarray(np.array([2.0**-149, 2.0**-127, 0.0], np.float32))
    assert e.contains(y).inner.tolist() == [False, True, True]


def test_head_on_the_host_is_the_same_head(cupy: Any) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, 5, 4)) for _ in range(3))
    given = {"mask": rng.random((5, 5)) < 0.7, "bias": rng.standard_normal((2, 1, 5)), "sink": np.array([0.5, -1.0])}
    on = split(
        *(cupy.asarray(x) for x in (q, k, v)), Spec(empty_row="mean"), **{n: cupy.asarray(x) for n, x in given.items()}
    )
    off = split(q, k, v, Spec(empty_row="mean"), **given)
    for a, b in zip(on, off, strict=True):
        assert a.device
        assert not a.host.device
        for name in ("q", "k", "v"):
            assert np.array_equal(getattr(a.host, name), getattr(b, name))
        rows = slice(0, 5)
        assert np.array_equal(a.host.keep(rows), b.keep(rows))
        assert np.array_equal(a.host.bias(rows)[0], b.bias(rows)[0])
        assert a.host.sink == b.sink


class TestArithmetic:
    def test_emulation_is_refused(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        x = cupy.asarray(np.eye(3))
        assert compute.certify(x, x, x).undecided == 0
        monkeypatch.setenv("CUBLAS_EMULATE_DOUBLE_PRECISION", "1")
        with pytest.raises(CanaryFailed, match="CUBLAS_EMULATE_DOUBLE_PRECISION"):
            compute.certify(x, x, x)
        monkeypatch.setenv("CUBLAS_EMULATE_DOUBLE_PRECISION", "0")
        assert compute.certify(x, x, x).undecided == 0
        monkeypatch.setattr(device_arithmetic, "math_mode", lambda: 8)
        with pytest.raises(CanaryFailed, match="math mode"):
            compute.certify(x, x, x)
        for mode in (0, 2, 3, 16):
            monkeypatch.setattr(device_arithmetic, "math_mode", lambda mode=mode: mode)
            assert compute.certify(x, x, x).undecided == 0

    def test_a_certificate_says_whether_the_handle_was_seen(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        x = cupy.asarray(np.eye(3))
        assert any("its handle is not seen" in a for a in compute.certify(x, x, x).assumptions)
        monkeypatch.setattr(device_arithmetic, "math_mode", lambda: 0)
        assert any("(environment, handle)" in a for a in compute.certify(x, x, x).assumptions)

    def test_the_canaries_run_on_the_device(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(canaries, "_passed", set())
        true = cupy.matmul

        def rough(a: Any, b: Any, out: Any = None) -> Any:
            got = fake_cupy.wrap(true(a, b).inner.astype(np.float32).astype(np.float64))
            if out is not None:
                out[...] = got
            return got

        x = cupy.asarray(np.eye(3))
        monkeypatch.setattr(cupy, "matmul", rough)
        with pytest.raises(CanaryFailed, match="this device's arithmetic"):
            compute.certify(x, x, x)
        monkeypatch.setattr(cupy, "matmul", true)
        compute.certify(x, x, x)
        monkeypatch.setattr(canaries, "failures", lambda _: pytest.fail("asked twice"))
        compute.certify(x, x, x)  # once a process

    def test_an_exp_that_is_off_is_seen(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(canaries, "_passed", set())

        def rough(x: Any, out: Any = None) -> Any:
            return fake_cupy.wrap(np.exp(fake_cupy.unwrap(x)) * (1 + 2.0**-50))

        monkeypatch.setattr(device_arithmetic, "exps", lambda: (rough, None))
        x = cupy.asarray(np.eye(3))
        with pytest.raises(CanaryFailed, match="exp"):
            compute.certify(x, x, x)


def test_libraries_are_not_mixed(cupy: Any) -> None:
    x = np.eye(3)
    y = cupy.asarray(x)
    with pytest.raises(InputError, match="one library"):
        compute.certify(y, x, x)
    with pytest.raises(InputError, match="two libraries"):
        compute.certify(y, y, y, grad_output=x)
    with pytest.raises(InputError, match="two libraries"):
        compute.certify(y, y, y, bias=x)


def test_the_fused_shift_is_used_where_there_is_one(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def shifted(scores: Any, top: Any) -> None:
        calls.append(scores.shape)
        scores -= top[:, None]
        exp64(scores, out=scores)

    rng = np.random.default_rng(3)
    x = [cupy.asarray(rng.standard_normal((5, 4))) for _ in range(3)]
    plain = compute.certify(*x)
    monkeypatch.setattr(device_arithmetic, "exps", lambda: (exp64, shifted))
    fused = compute.certify(*x)
    assert calls == [(5, 5)]
    assert np.array_equal(plain.output.host().mid, fused.output.host().mid)
    assert np.array_equal(plain.output.host().rad, fused.output.host().rad)


def test_tiles_of_a_device_are_bounded() -> None:
    s = operands.device_settings(Settings(), 1 << 20)
    assert s.tile >= operands.TILE
    assert s.tile * (1 << 20) <= max(operands.DEVICE_CELLS, operands.TILE << 20)
    assert replace(s, block=operands.BLOCK, tile=operands.TILE) == Settings()
