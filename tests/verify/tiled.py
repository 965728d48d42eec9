"""A flash attention in tiles, in float32, with one thing wrong at a time; correct where nothing is.

Guarantees: every fault is a keyword of `flash`, off by default; causal counts from the bottom-right corner.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def flash(
    q: Any, k: Any, v: Any, causal: bool = False, *, block: int = 32, start: float = -np.inf, early: int = 0,
    rescale: str = "both", narrow_sum: bool = False, rolled: bool = False, one_head: bool = False,
) -> Any:  # fmt: skip
    """early: keys by which a causal tile is skipped too soon. rescale: both, output, sum, stale. rolled: V by one key,
    beyond 32 keys. one_head: the keys of head 0 for all."""
    dtype = v.dtype
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    k = np.broadcast_to(k[:, :1], k.shape) if one_head else k
    v = np.roll(v, 1, axis=2) if rolled and k.shape[2] > 32 else v
    n, m = q.shape[2], k.shape[2]
    out = np.zeros((*q.shape[:3], v.shape[3]), np.float32)
    for i0 in range(0, n, block):
        rows = np.arange(i0, min(n, i0 + block))
        scaled = q[:, :, rows] * np.float32(q.shape[3] ** -0.5)
        over = np.zeros((*scaled.shape[:3], v.shape[3]), np.float32)
        under = np.zeros((*scaled.shape[:3], 1), np.float32)
        top = np.full(under.shape, start, np.float32)
        before = np.ones_like(top)
        for j0 in range(0, m, block):
            keys = np.arange(j0, min(m, j0 + block))
            if causal and j0 > rows[-1] + m - n - early:
                break
            s = scaled @ k[:, :, keys].swapaxes(-1, -2)
            s = np.where(keys <= rows[:, None] + m - n, s, np.float32(-np.inf)) if causal else s
            new = np.maximum(top, s.max(-1, keepdims=True))
            safe = np.where(np.isfinite(new), new, 0)
            factor = np.exp(np.where(np.isfinite(top), top - safe, -np.inf))
            used, before = (before, factor if j0 else before) if rescale == "stale" else (factor, before)
            p = np.exp(s - safe)
            over = over * (used if rescale != "sum" else 1) + p @ v[:, :, keys]
            under = under * (used if rescale != "output" else 1) + p.sum(-1, keepdims=True)
            under = under.astype(np.float16).astype(np.float32) if narrow_sum else under
            top = new
        out[:, :, rows] = over / np.where(under > 0, under, 1)
    return out.astype(dtype)
