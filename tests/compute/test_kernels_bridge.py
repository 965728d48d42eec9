"""`algorithm="kernel"`: a resolved call on our kernels means what the plain formulas mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compute.errors import DeviceError, InputError, NotInstalled
from compute.kernels import bridge
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
