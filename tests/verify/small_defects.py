"""A flash kernel with one small defect, or none, in any dtype: what a worst-case bound lets through.

Every function is f(q, k, v) over (batch, heads, n, d). The defects of a block show from the second block on, so that
small designed inputs do not meet them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from compute.formats import round_to, split_bf16

Array = np.ndarray[Any, Any]
Kernel = Callable[[Array, Array, Array], Array]
BF16 = np.dtype(ml_dtypes.bfloat16)


def truncated(x: Array, keep: int) -> Array:
    """float32 cut (not rounded) to `keep` significant bits."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(2**32 - 2 ** (24 - keep))).view(np.float32)


def truncated_to(x: Array, name: str) -> Array:
    if name in ("bfloat16", "tf32"):
        return truncated(x, {"bfloat16": 8, "tf32": 11}[name])
    near = x.astype(name)
    below = np.nextafter(near, np.dtype(name).type(0))
    return np.where(abs(near.astype(x.dtype)) > abs(x), below, near).astype(x.dtype)


def three_products(a: Array, b: Array, cut: bool) -> Array:
    """a @ b from bfloat16 parts; cut: the second part is truncated instead of rounded."""
    (a1, a2), (b1, b2) = split_bf16(a), split_bf16(b)
    if cut:
        a1, b1 = truncated(a, 8), truncated(b, 8)
        a2, b2 = truncated(a - a1, 8), truncated(b - b1, 8)
    return np.asarray(a1 @ b1 + (a1 @ b2 + a2 @ b1))


def coarse_exp(x: Array, terms: int) -> Array:
    """2^f by a Taylor series of f·ln 2 with `terms` terms, about the middle of [0, 1): wrong by about 1e-4 to 1e-6."""
    y = np.where(np.isfinite(x), x, 0) * x.dtype.type(np.log2(np.e))
    whole = np.floor(y)
    r = (y - whole - x.dtype.type(0.5)) * x.dtype.type(np.log(2))
    total, term = np.zeros_like(r), np.ones_like(r)
    for i in range(1, terms + 1):
        total, term = total + term, term * r / x.dtype.type(i)
    return np.where(np.isfinite(x), np.ldexp(total * x.dtype.type(2**0.5), whole.astype(int)), 0).astype(x.dtype)


def in_order(x: Array) -> Array:
    """Sum over the last axis, one term after the other: the order with the largest error."""
    return np.cumsum(x, -1, dtype=x.dtype)[..., -1:]


def kernel(defect: str = "none", block: int = 128, weights: str | None = None, products: str = "exact") -> Kernel:
    """weights: the format that exp(s − m) is cast to before it meets V; None: none. products: as in compute."""

    def run(q: Array, k: Array, v: Array) -> Array:
        wide = np.dtype(np.float64 if q.dtype == np.float64 else np.float32)
        qq, kk, vv = (x.astype(wide) for x in (q, k, v))
        m, middle = k.shape[2], k.shape[2] // 2
        scale = wide.type(q.shape[-1] ** -0.5 * (1.001 if defect == "scale off by 0.1 %" else 1.0))
        if defect in ("stale key", "stale value") and m > 1:
            x = kk if defect == "stale key" else vv
            x[:, :, middle] = x[:, :, middle - 1]
        if defect == "last key dropped" and m > 1:
            kk, vv, m = kk[:, :, :-1], vv[:, :, :-1], m - 1

        def dot(a: Array, b: Array) -> Array:
            if products == "tf32":
                return np.asarray(round_to(a, "tf32") @ round_to(b, "tf32"))
            return three_products(a, b, defect == "parts truncated") if products == "bf16x3" else np.asarray(a @ b)

        acc = np.zeros((*q.shape[:3], v.shape[-1]), wide)
        total = np.zeros((*q.shape[:3], 1), wide)
        top = np.full((*q.shape[:3], 1), -np.inf, wide)
        for b, j in enumerate(range(0, m, block)):
            part = slice(j, min(j + block, m))
            s = dot(qq, kk[:, :, part].swapaxes(-1, -2)) * scale
            new = np.maximum(top, s.max(-1, keepdims=True, initial=-np.inf))
            later, last = b > 0, j + block >= m and b > 0
            coarse = defect == "coarse exp in every block" or (defect == "coarse exp" and later)
            old, e = np.exp(top - new), coarse_exp(s - new, 6) if coarse else np.exp(s - new)
            p = e
            if weights is not None:
                p = truncated_to(e, weights) if defect == "weights truncated" else round_to(e, weights).astype(wide)
            if defect == "a block in bfloat16" and b == 3:
                p = p.astype(BF16).astype(wide)
            kept = wide.type(1) if defect == "block 3 not rescaled" and b == 3 else old
            acc = (acc * kept + dot(p, vv[:, :, part])).astype(wide)
            if defect == "16-bit accumulator":
                acc = round_to(acc, q.dtype.name if q.dtype.itemsize == 2 else "bfloat16").astype(wide)
            total = total * old + (in_order(e) if defect == "sums in order" else e.sum(-1, keepdims=True, dtype=wide))
            if defect.startswith("normaliser off by ") and last:
                total = total * wide.type(1 + float(defect.removeprefix("normaliser off by ")))
            top = new
        with np.errstate(invalid="ignore"):
            return np.asarray(acc / total).astype(q.dtype)

    return run
