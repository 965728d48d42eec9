"""The search for worst inputs: what it finds is proved, large, and of the declared format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compute.calls import attention, attention_backward
from compute.certificate import certify
from compute.errors import InputError
from compute.roundings import Eager, Flash
from compute.search import worst_inputs
from compute.spec import Rope, Spec
from tests.compute.lowprec import eager_backward, flash, flash_backward, quant
from tests.compute.truth import array, truth


def half(q, k, v):
    return flash(q, k, v, weights="float16", output="float16", block=64)


def test_float16_flash_is_driven_far_beyond_random_inputs() -> None:
    alg = Flash(weights="fp16", output="fp16", block=64, sums="blocks")
    found = worst_inputs(half, None, "fp16", (1, 1024, 16, 1), 2.0, algorithm=alg)
    assert found.gain > 40
    assert found.share is not None
    assert 0.55 < found.share <= 1
    for x in (found.q, found.k, found.v):
        np.testing.assert_array_equal(x, quant(x, "float16"))
    exact = array(truth(found.q, found.k, found.v)["z"])
    assert abs(abs(found.output - exact).max() - found.error) < 1e-12
    assert "times the mean error" in found.text()


def test_without_a_declared_algorithm_the_kernel_decides() -> None:
    found = worst_inputs(half, Spec(), "fp16", (2, 256, 8, 2), 0.8)
    assert found.share is None
    assert found.output.shape == (2, 2)
    assert found.gain > 10


def test_a_correct_float64_kernel_has_next_to_no_error() -> None:
    def right(q, k, v):
        s = q @ k.T / np.sqrt(q.shape[1])
        w = np.exp(s - s.max(axis=1, keepdims=True))
        return w @ v / w.sum(axis=1, keepdims=True)

    assert worst_inputs(right, None, "fp16", (1, 32, 4, 1), 0.3).error < 1e-14


def test_every_row_is_driven_to_its_bound() -> None:
    """Rows that share the keys don't compete: all reach what one can, also where a causal row sees a part."""
    alg = Flash(weights="fp16", output="fp16", block=64, sums="blocks")
    found = worst_inputs(half, None, "fp16", (9, 512, 12, 3), 1.5, algorithm=alg)
    assert found.shares is not None
    assert found.shares.shape == (9,)
    assert found.shares.min() > 0.55
    assert found.shares.max() <= 1
    assert found.share == found.shares[found.at[0]]
    assert len(np.unique(found.q, axis=0)) == 9
    assert f"rows: {found.shares.min():.0%}" in found.text()

    keep = np.tril(np.ones((64, 64), bool))

    def causal(q, k, v):
        return flash(q, k, v, weights="float16", output="float16", block=64, keep=keep)

    found = worst_inputs(causal, Spec(causal=True), "fp16", (64, 64, 12, 1), 1.0, algorithm=alg)
    assert found.shares is not None
    assert found.shares[0] == 0  # one key: its weight is 1
    assert np.median(found.shares) > 0.4


def test_a_key_gradient_errs_thousands_of_times_more_than_at_random() -> None:
    """The errors of the stored output add up in D, and those of D along a column of dS."""

    def kernel(q, k, v, go):
        return flash_backward(q, k, v, go, fmt="float16")["dk"]

    alg = Flash(weights="fp16", output="fp16")
    found = worst_inputs(kernel, None, "fp16", (512, 32, 16, 32), 1.5, target="dk", algorithm=alg)
    assert found.gain > 1000
    assert found.share is not None
    assert found.share > 0.1


GRADIENTS = {
    "flash": (flash_backward, Flash(weights="fp16", output="fp16")),
    "eager": (eager_backward, Eager(weights="fp16", output="fp16", scores="fp16")),
}


@pytest.mark.parametrize("target", ["dq", "dk", "dv"])
@pytest.mark.parametrize("style", GRADIENTS)
def test_gradients_are_driven_too(style: str, target: str) -> None:
    run, alg = GRADIENTS[style]

    def kernel(q, k, v, go):
        return run(q, k, v, go, fmt="float16")[target]

    found = worst_inputs(kernel, None, "fp16", (256, 256, 8, 8), 1.5, target=target, algorithm=alg)
    assert found.gain > 10
    assert found.grad_output is not None
    exact = getattr(certify(found.q, found.k, found.v, grad_output=found.grad_output), target)
    assert np.abs(exact.mid - found.exact).max() <= (exact.rad + found.radius).max()
    at = found.at
    assert abs(abs(found.output[at] - exact.mid[at]) - found.error) <= 2 * found.radius[at] + found.error * 1e-12
    assert found.shares is not None
    assert found.shares.shape == found.output.shape[:1]
    assert 0.01 < found.shares.max() <= 1
    assert target in found.text()
    for x in (found.q, found.k, found.v, found.grad_output):
        np.testing.assert_array_equal(x, quant(x, "float16"))


@pytest.mark.parametrize("target", ["output", "dq", "dk", "dv"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 1, 2, 5), (1, 3, 1, 1), (2, 5, 6, 7)])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_small_shapes(target: str, shape: tuple[int, int, int, int], softcap: float | None) -> None:
    spec = Spec(softcap=softcap)

    def right(q, k, v, go=None):
        if go is None:
            return attention(q, k, v, spec)
        return getattr(attention_backward(go, q, k, v, spec), target)

    found = worst_inputs(right, spec, "bf16", shape, 0.05, target=target)  # type: ignore[arg-type]
    assert found.error < 1e-12


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (0, 1, 1, 1)},
        {"shape": (1, 2, 3)},
        {"shape": "1234"},
        {"shape": (1, 2.0, 3, 4)},
        {"shape": (1, True, 3, 4)},
        {"shape": 4},
        {"budget": -1},
        {"budget": 0},
        {"budget": float("nan")},
        {"budget": float("inf")},
        {"budget": "5"},
        {"budget": True},
        {"budget": None},
        {"formats": "fp12"},
        {"formats": 16},
        {"target": "dx"},
        {"target": None},
        {"algorithm": "flash"},
        {"seed": "0"},
        {"seed": -1},
        {"seed": 0.5},
        {"spec": "causal"},
        {"spec": Spec(window=(3, 0))},
        {"spec": Spec(rope=Rope())},
        {"spec": Spec(causal=True), "target": "dq"},
        {"kernel": "half"},
        {"kernel": lambda q, k, v: "text"},
        {"kernel": lambda q, k, v: [[1.0], [1.0, 2.0]]},
    ],
    ids=str,
)
def test_arguments_are_checked(change: dict[str, Any]) -> None:
    given = {"kernel": half, "formats": "fp16", "shape": (1, 4, 2, 1), "budget": 0.2} | change
    with pytest.raises(InputError, match="expected"):
        worst_inputs(**given)


def test_a_kernel_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="kernel gave shape"):
        worst_inputs(lambda q, k, v: np.zeros((3, 3)), None, "fp16", (1, 4, 2, 1), 0.2)


def test_a_kernel_of_batched_arrays_is_met_as_it_is() -> None:
    def batched(q, k, v):
        assert q.shape[:2] == (1, 1)
        return half(q[0, 0], k[0, 0], v[0, 0])[None, None]

    alg = Flash(weights="fp16", output="fp16", block=64, sums="blocks")
    found = [worst_inputs(f, shape=(2, 64, 16, 1), budget=0.5, algorithm=alg) for f in (half, batched)]
    assert [w.output.shape for w in found] == [(2, 1), (2, 1)]
    assert all(w.error > 0 for w in found)

    def broken(q, k, v):
        raise ValueError(f"q has {q.ndim} axes")

    with pytest.raises(ValueError, match="q has 2 axes"):
        worst_inputs(broken, shape=(1, 8, 4, 1), budget=0.2)
