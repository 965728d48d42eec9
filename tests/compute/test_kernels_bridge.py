"""`algorithm="kernel"`: a resolved call on our kernels means what the plain formulas mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compute.errors import DeviceError, InputError, NotInstalled
from compute.kernels import attention, bridge
from compute.kernels.emulator import compiler
from compute.kernels.loader import Emulator
from compute.meaning import resolve
from compute.plain import backward as plain_backward
from compute.plain import forward as plain_forward
from compute.spec import Rope, Spec

try:
    compiler()
except NotInstalled as error:  # pragma: no cover
    pytest.skip(str(error), allow_module_level=True)

BACKEND = Emulator()
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two batch axes": {"batch": (2, 3)},
    "one mask for all": {"mask": (20, 33)},
    "mask a head": {"mask": (2, 4, 20, 33)},
    "causal window softcap": {"spec": Spec(causal="bottom-right", window=(9, 0), softcap=4.0)},
    "sink": {"sink": True, "spec": Spec(scale=0.7)},
}


def build(c: dict[str, Any], **more: Any) -> Any:
    rng = np.random.default_rng(1)
    batch = c.get("batch", (2,))
    q, k, v = (rng.standard_normal((*batch, h, r, d)) for h, r, d in ((4, 20, 16), (2, 33, 16), (2, 33, 8)))
    mask = rng.random(c["mask"]) < 0.6 if "mask" in c else None
    sink = rng.standard_normal(4) if c.get("sink") else None
    return resolve(q, k, v, c.get("spec", Spec()), mask=mask, sink=sink, **more)


@pytest.mark.parametrize("name", CALLS)
def test_means_what_the_plain_formulas_mean(name: str) -> None:
    problem = build(CALLS[name])
    out, lse = bridge.forward(problem, BACKEND)
    want, want_lse = plain_forward(problem.whole(), shifted=True)
    np.testing.assert_allclose(out, want, rtol=0, atol=200 * 2.0**-53 * np.abs(problem.v).max())
    np.testing.assert_allclose(lse, want_lse, rtol=200 * 2.0**-53, atol=200 * 2.0**-53)
    rng = np.random.default_rng(2)
    grad, grad_lse = rng.standard_normal(out.shape), rng.standard_normal(lse.shape)
    got = bridge.backward(problem, grad, grad_lse, None, None, BACKEND)
    exact = plain_backward(problem.whole(), grad, grad_lse, shifted=True)
    shape = (*problem.batch, 2, 2)
    group = {"dq": lambda x: x, "dk": lambda x: x.reshape(*shape, *x.shape[-2:]).sum(-3)}
    group["dv"] = group["dk"]
    for key, sum_groups in group.items():
        value = sum_groups(np.asarray(getattr(exact, key)))
        assert got[key].shape == value.shape
        np.testing.assert_allclose(got[key], value, rtol=0, atol=1e-12 * np.abs(value).max())
    assert got["dscale"] == pytest.approx(float(np.sum(exact.dscale)), rel=1e-11)
    again = bridge.backward(problem, grad, grad_lse, out, lse, BACKEND)
    np.testing.assert_array_equal(again["dk"], got["dk"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"bias": np.zeros((20, 33))}, "bias"),
        ({"alibi_slopes": np.ones(4)}, "ALiBi"),
        ({"dropout_mask": np.ones((2, 4, 20, 33), bool)}, "dropout"),
        ({"key_lengths": np.array([3, 4])}, "key_lengths"),
    ],
)
def test_what_kernels_cannot_do_is_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bridge.forward(build({}, **more), BACKEND)


def test_rope_is_refused() -> None:
    with pytest.raises(InputError, match="RoPE"):
        bridge.forward(build({"spec": Spec(rope=Rope())}), BACKEND)


def test_numpy_arrays_need_a_backend() -> None:
    with pytest.raises(DeviceError, match="expected CuPy arrays"):
        bridge.forward(build({}))


WIDE = {
    "no limit in words": {"window": (2**31 - 1, 2**31 - 1)},
    "beyond 32 bits": {"window": (2**40, 2**33)},
    "to the left only": {"window": (2**31 - 1, 0), "causal": "bottom-right"},
    "all keys are past": {"causal": "top-left", "past": 2**40},
    "a window that left all keys behind": {"causal": "top-left", "past": 2**40, "window": (2**39, None)},
    "a window that reaches back": {"causal": "top-left", "past": 40, "window": (38, None)},
    "the right side alone": {"window": (None, 3)},
    "the left side alone": {"window": (2, None), "causal": "bottom-right"},
    "behind the diagonal": {"window": (None, 0), "past": 5},
}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("family", ["simt", "mma"])
def test_windows_of_any_size(name: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = build({"spec": Spec(**WIDE[name])})
    monkeypatch.setattr(bridge, "_family", lambda *_: family)
    out, lse = bridge.forward(problem, BACKEND)
    want, want_lse = plain_forward(problem.whole(), shifted=True)
    np.testing.assert_allclose(out, want, rtol=0, atol=200 * 2.0**-53 * np.abs(problem.v).max())
    np.testing.assert_allclose(lse, want_lse, rtol=200 * 2.0**-53, atol=200 * 2.0**-53)
    grad = np.random.default_rng(2).standard_normal(out.shape)
    got = bridge.backward(problem, grad, None, out, lse, BACKEND)
    exact = plain_backward(problem.whole(), grad, None, shifted=True)
    np.testing.assert_allclose(got["dq"], exact.dq, rtol=0, atol=1e-12 * max(1.0, np.abs(exact.dq).max()))
    keys = np.asarray(exact.dk).reshape(2, 2, 2, *got["dk"].shape[-2:]).sum(2)
    np.testing.assert_allclose(got["dk"], keys, rtol=0, atol=1e-12 * max(1.0, np.abs(keys).max()))


class Recorder:
    """A backend that launches nothing and keeps what it was asked to."""

    xp, name, shared_limit, capability = np, "a recorder", 227 * 1024, (9, 0)

    def __init__(self) -> None:
        self.grids: list[tuple[int, ...]] = []

    def function(self, *_: Any) -> Any:
        return lambda grid, block, args, shared_mem=0: self.grids.append(grid)

    build = function

    def keep(self, array: Any) -> Any:
        return array


@pytest.mark.parametrize("family", ["simt", "mma"])
def test_grids_stay_within_the_limits_of_a_device(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More heads than grid.y can count (65535), as a long batch of short rows has."""
    q = np.zeros((70_000, 2, 3, 8))
    problem = resolve(q, q, q, Spec())
    monkeypatch.setattr(bridge, "_family", lambda *_: family)
    recorder = Recorder()
    out, lse = bridge.forward(problem, recorder)
    bridge.backward(problem, q, None, out, lse, recorder)
    assert len(recorder.grids) == 4
    for grid in recorder.grids:
        assert grid[0] < 2**31
        assert all(side <= 65535 for side in grid[1:])
        assert np.prod(grid) == 140_000


def test_what_32_bits_cannot_count_is_refused() -> None:
    q = np.broadcast_to(np.zeros(1), (1, 1, 1 << 29, 8))
    with pytest.raises(InputError, match="32 bits"):
        attention.problem(np, q, q, q, Spec())
    p = attention.problem(np, *(np.zeros((1, 1, 3, 8)),) * 3, Spec())
    with pytest.raises(InputError, match="blocks: expected less than 2"):
        attention._launch(Recorder(), p, "simt", "attention_forward", 1 << 20, 1 << 17, ())


@pytest.mark.parametrize(("limit", "d", "fits"), [(227, 128, True), (99, 128, False), (227, 512, False)])
def test_heads_too_large_for_a_device_are_named(limit: int, d: int, fits: bool) -> None:
    recorder = Recorder()
    recorder.shared_limit = limit * 1024
    problem = resolve(*(np.zeros((1, 2, 5, d)),) * 3, Spec())
    if fits:
        bridge.forward(problem, recorder)
        return
    with pytest.raises(DeviceError, match=f"d_k = {d}.* and a recorder has {limit}: use algorithm='online'"):
        bridge.forward(problem, recorder)


@pytest.mark.parametrize("family", ["simt", "mma"])
@pytest.mark.parametrize("empty", ["zero", "nan"])
def test_a_sink_of_minus_infinity_is_none(family: str, empty: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    q, k, v, grad = (rng.standard_normal((1, 2, 5, 8)) for _ in range(4))
    mask = np.ones((5, 5), bool)
    mask[2] = False
    problem = resolve(q, k, v, Spec(empty_row=empty), mask=mask, sink=np.array([-np.inf, 0.5]))
    monkeypatch.setattr(bridge, "_family", lambda *_: family)
    out, lse = bridge.forward(problem, BACKEND)
    want, want_lse = plain_forward(problem.whole(), shifted=True)
    np.testing.assert_allclose(out, want, rtol=0, atol=200 * 2.0**-53)
    np.testing.assert_allclose(lse, want_lse, rtol=200 * 2.0**-53)
    got = bridge.backward(problem, grad, None, out, lse, BACKEND)
    exact = plain_backward(problem.whole(), grad, None, shifted=True)
    for name in ("dq", "dk", "dv", "dsink"):
        np.testing.assert_allclose(got[name], np.asarray(getattr(exact, name)).reshape(got[name].shape), atol=1e-13)


@pytest.mark.parametrize("family", ["simt", "mma"])
def test_arrays_may_lie_in_memory_as_they_like(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transposed, strided and reversed arrays, of every argument of forward and backward."""
    monkeypatch.setattr(bridge, "_family", lambda *_: family)
    rng = np.random.default_rng(4)

    def strange(a: Any) -> Any:
        held = np.full((*a.shape[::-1][:-1], 2 * a.shape[0] + 1), np.nan)
        held[..., 1::2] = a.T[..., ::-1]
        view = held[..., 1::2][..., ::-1].T
        assert not view.flags.c_contiguous
        return view

    q, k, v, grad = (rng.standard_normal((3, 2, r, 8)) for r in (5, 7, 7, 5))
    sink, grad_lse = rng.standard_normal(2), rng.standard_normal((3, 2, 5))
    mask = rng.random((3, 2, 5, 7)) < 0.7

    def everything(f: Any) -> dict[str, Any]:
        odd = np.asarray(f(mask.astype(np.float64)) == 1.0) if f is not np.asarray else mask
        problem = resolve(*(f(a) for a in (q, k, v)), Spec(softcap=3.0), mask=odd, sink=sink[::-1][::-1])
        out, lse = bridge.forward(problem, BACKEND)
        return {"out": out, "lse": lse, **bridge.backward(problem, f(grad), f(grad_lse), f(out), f(lse), BACKEND)}

    plain, odd = everything(np.asarray), everything(strange)
    for name, value in plain.items():
        np.testing.assert_array_equal(odd[name], value, err_msg=name)
