"""One output in a test: rows without keys, shapes, and what a backward pass must return."""

from typing import Any

import numpy as np
import pytest

import tests.verify.faulty_gradients as gradients
import verify
from compute.spec import Spec

RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal((1, 2, n, 4)) for n in (3, 5, 5))
MASK = np.ones((1, 1, 3, 5), bool)
MASK[..., 1, :] = False
MEAN = V.mean(2)[:, :, None]


def output(row: Any) -> Any:
    """Attention under MASK, with a given row where no key is left."""
    s = Q @ K.swapaxes(-1, -2) / 2
    e = np.exp(s - s.max(-1, keepdims=True))
    out = e / e.sum(-1, keepdims=True) @ V
    out[:, :, 1:2] = row
    return out


@pytest.mark.parametrize("row", [0.0, -0.0, np.nan, MEAN])
def test_each_convention_of_an_empty_row_passes_where_none_is_declared(row: Any) -> None:
    verify.assert_attention(output(row), Q, K, V, mask=MASK)
    bias = np.where(MASK, 0.0, -np.inf)
    verify.assert_attention(output(row), Q, K, V, bias=bias)


@pytest.mark.parametrize(
    "row", [7.0, np.inf, MEAN * (1 + 1e-9), MEAN[:, ::-1], [0.0, 0.0, 0.0, 1e-300], [0, 0, 0, np.nan]]
)
def test_no_other_row_passes(row: Any) -> None:
    with pytest.raises(AssertionError, match=r"a row without any key is .* expected 0 or NaN or the mean") as caught:
        verify.assert_attention(output(row), Q, K, V, mask=MASK)
    assert "(0, 0, 1, 0)" in str(caught.value)


@pytest.mark.parametrize("spec", ["object", "words"])
@pytest.mark.parametrize("declared", ["zero", "nan", "mean"])
def test_what_is_declared_of_empty_rows_is_asked(declared: Any, spec: str) -> None:
    given: Any = Spec(empty_row=declared) if spec == "object" else f"empty-row={declared}"
    for name, row in (("zero", 0.0), ("nan", np.nan), ("mean", MEAN), ("none of them", 7.0)):
        if name == declared:
            verify.assert_attention(output(row), Q, K, V, mask=MASK, spec=given)
        else:
            with pytest.raises(AssertionError, match="without any key"):
                verify.assert_attention(output(row), Q, K, V, mask=MASK, spec=given)


def test_an_empty_row_that_must_raise_has_no_right_output() -> None:
    with pytest.raises(AssertionError, match="expected an exception"):
        verify.assert_attention(output(0.0), Q, K, V, mask=MASK, spec=Spec(empty_row="error"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_mean_of_an_empty_row_is_rounded_as_a_mean_is(dtype: str) -> None:
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    none = np.zeros((1, 1, 3, 5), bool)
    mean = np.broadcast_to(v.astype(np.float32).mean(2, keepdims=True).astype(dtype), (1, 2, 3, 4))
    verify.assert_attention(mean, q, k, v, mask=none)
    with pytest.raises(AssertionError, match="without any key"):
        verify.assert_attention(mean * mean.dtype.type(1.01), q, k, v, mask=none)


def test_no_keys_at_all_give_zero_or_nan() -> None:
    k = v = np.zeros((0, 4))
    q = np.ones((2, 4))
    for right in (0.0, np.nan):
        verify.assert_attention(np.full((2, 4), right), q, k, v)
    with pytest.raises(AssertionError, match="without any key is 7"):
        verify.assert_attention(np.full((2, 4), 7.0), q, k, v)


def test_the_shape_of_the_output_is_that_of_the_queries() -> None:
    right = output(0.0)[:, :1]
    given = (Q[:, :1], K[:, :1], V[:, :1])
    verify.assert_attention(right, *given, mask=MASK)
    for out in (right[0], right[0, 0], right[..., :3], right[None, 0, 0]):
        with pytest.raises(AssertionError, match="output has shape"):
            verify.assert_attention(out, *given, mask=MASK)
    verify.assert_attention(right[0, 0], *(x[0, 0] for x in given), mask=MASK[0, 0])


def test_a_backward_pass_that_leaves_out_a_gradient_is_told_the_order() -> None:
    def forward(q: Any, k: Any, v: Any, *, bias: Any = None, scale: Any = None) -> Any:
        return gradients.scaled_forward(q, k, v, bias=bias, scale=scale)

    def backward(q: Any, k: Any, v: Any, g: Any, **more: Any) -> Any:
        found = gradients.scaled_backward(q, k, v, g, **more)
        return found["q"], found["k"], found["v"]

    result = verify.check(forward, backward=backward, dtype="float64", quick=True)
    told = [f.message for f in result.findings if "no gradient of bias" in f.message]
    assert told, result.text()
    assert "(dq, dk, dv, dbias) in this order, or a mapping by the names q, k, v, bias" in told[0]
