"""Sums in an order that changes from call to call are no fault; a leak of masked keys is one, in any order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verify
from tests.verify.faulty import band, corner, masked, scores, wide

Function = Callable[..., Any]


def any_order(leak: float = 0.0, *, chance: bool = True) -> Function:
    """Attention whose sums run over the keys in an order drawn anew at each call, as additions by atomics do.

    leak: the weight that a key has which the mask hides. chance: False for the keys' own order.
    """
    rng = np.random.default_rng(0)

    def attention(q, k, v, *, mask=None, causal=False, scale=None, window=None):  # type: ignore[no-untyped-def]
        s = band(corner(masked(scores(q, k, scale), mask), causal), window)
        top = s.max(-1, keepdims=True, initial=-np.inf)
        e = np.exp(s - np.where(np.isfinite(top), top, 0).astype(s.dtype))
        order = rng.permutation(k.shape[2]) if chance else np.arange(k.shape[2])
        e, w = np.ascontiguousarray(e[..., order]), np.ascontiguousarray(wide(v)[:, :, order])
        total = e.sum(-1, keepdims=True)
        e = e + np.where(e > 0, 0, e.dtype.type(leak)) if mask is not None and leak else e
        return ((e @ w) / np.where(total > 0, total, 1)).astype(v.dtype)

    return attention


@pytest.mark.parametrize(
    ("dtype", "seed"), [("float64", 0), ("float64", 1), ("float32", 0), ("float32", 1), ("float16", 0), ("bfloat16", 0)]
)
def test_an_order_of_sums_by_chance_agrees(dtype: str, seed: int) -> None:
    result = verify.check(any_order(), dtype=dtype, spec="causal=top-left", seed=seed, quick=True)
    assert result.ok, result.text()
    if dtype in ("float64", "float32"):
        assert {c.name: c.met for c in result.conventions}["deterministic"] == "no"


@pytest.mark.parametrize("chance", [True, False])
def test_a_leak_beyond_the_worst_case_is_found_in_any_order(chance: bool) -> None:
    result = verify.check(any_order(2.0**-100, chance=chance), dtype="float32", quick=True)
    assert any("masked keys are inert" in f.message + f.rule for f in result.findings), result.text()


def test_a_leak_of_single_bits_is_found_where_equal_calls_give_equal_bits() -> None:
    """A value of 2¹²⁶ behind a mask moves the last bit alone: within the worst case, and still no answer of a mask."""
    result = verify.check(any_order(2.0**-149, chance=False), dtype="float32", quick=True)
    assert any("masked keys are inert" in f.message + f.rule for f in result.findings), result.text()
