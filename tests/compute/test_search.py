"""The search for worst inputs: what it finds is proved, large, and of the declared format."""

from __future__ import annotations

import numpy as np
import pytest

from compute.errors import InputError
from compute.roundings import Flash
from compute.search import worst_inputs
from compute.spec import Spec
from tests.compute.lowprec import flash, quant
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


@pytest.mark.parametrize("shape", [(0, 1, 1, 1), (1, 2, 3)])
def test_shapes_are_checked(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="expected"):
        worst_inputs(half, None, "fp16", shape)  # type: ignore[arg-type]


def test_a_kernel_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="kernel gave shape"):
        worst_inputs(lambda q, k, v: np.zeros((3, 3)), None, "fp16", (1, 4, 2, 1), 0.2)
