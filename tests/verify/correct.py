"""Correct implementations in NumPy: a check must call none of them wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.verify.faulty import apply, attend, band, corner, masked, repeated, scores, softmax, tiles, wide


def plain(q, k, v, *, mask=None, bias=None, causal=False, scale=None, window=None):  # type: ignore[no-untyped-def]
    s = scores(q, k, scale)
    if bias is not None:
        s = s + wide(bias)
    return attend(band(corner(masked(s, mask), causal), window), v)


def tiled(q, k, v, *, mask=None, causal=False):  # type: ignore[no-untyped-def]
    """Online softmax over tiles of 48 keys."""
    s, w = corner(masked(scores(q, k), mask), causal), repeated(wide(v), q.shape[1])
    top = np.full((*s.shape[:-1], 1), -np.inf, s.dtype)
    total, acc = np.zeros_like(top), np.zeros((*s.shape[:-1], v.shape[-1]), s.dtype)
    for t in tiles(s.shape[-1], 48):
        new = np.maximum(top, s[..., t].max(-1, keepdims=True))
        safe = np.where(np.isfinite(new), new, 0).astype(s.dtype)
        e, old = np.exp(s[..., t] - safe), np.exp(np.where(np.isfinite(top), top - safe, -np.inf)).astype(s.dtype)
        total, acc, top = total * old + e.sum(-1, keepdims=True), acc * old + e @ w[:, :, t], new
    return (acc / np.where(total > 0, total, 1)).astype(v.dtype)


def backwards(q, k, v, *, mask=None):  # type: ignore[no-untyped-def]
    """Sums over the keys in the opposite order."""
    s = masked(scores(q, k), mask)[..., ::-1]
    return attend(np.ascontiguousarray(s), np.ascontiguousarray(v[:, :, ::-1]))


def scale_on_q(q, k, v):  # type: ignore[no-untyped-def]
    """τq rounded in the work format, then the product."""
    t = wide(q) * np.float32(q.shape[-1] ** -0.5)
    return attend(t @ repeated(wide(k), q.shape[1]).swapaxes(-1, -2), v)


def base_two(q, k, v, *, mask=None):  # type: ignore[no-untyped-def]
    """exp2 with log2(e) folded into the scale."""
    s = scores(q, k, q.shape[-1] ** -0.5 * float(np.log2(np.e)))
    s = masked(s, mask)
    top = s.max(-1, keepdims=True)
    e = np.exp2(s - np.where(np.isfinite(top), top, 0).astype(s.dtype))
    total = e.sum(-1, keepdims=True)
    return apply(e / np.where(total > 0, total, 1), v)


def late_division(q, k, v, *, mask=None):  # type: ignore[no-untyped-def]
    """Divided by the sum after the product with V."""
    s = masked(scores(q, k), mask)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0).astype(s.dtype))
    total = e.sum(-1, keepdims=True)
    return ((e @ repeated(wide(v), q.shape[1])) / np.where(total > 0, total, 1)).astype(v.dtype)


def sigmoid_sink(q, k, v, *, sink=None):  # type: ignore[no-untyped-def]
    """A sink as a sigmoid gate on the output: σ(lse − sink)."""
    s = scores(q, k)
    out = softmax(s) @ repeated(wide(v), q.shape[1])
    if sink is None:
        return out.astype(v.dtype)
    top = s.max(-1, keepdims=True)
    lse = np.log(np.exp(s - top).sum(-1, keepdims=True)) + top
    with np.errstate(over="ignore"):
        gate = 1 / (1 + np.exp(wide(sink).reshape(-1, 1, 1) - lse))
    return (out * gate).astype(v.dtype)


def alibi_shifted(q, k, v, *, alibi_slopes=None, causal=False):  # type: ignore[no-untyped-def]
    """ALiBi with a constant of the row taken off: slope·j instead of −slope·(i − j)."""
    s = scores(q, k)
    if alibi_slopes is not None:
        if not causal:
            raise NotImplementedError("the shifted form is ALiBi under causal only")
        s = s + wide(alibi_slopes)[:, None, None] * np.arange(k.shape[2], dtype=np.float32)
    return attend(corner(s, causal), v)


def zero_shift_by_row_bound(q, k, v):  # type: ignore[no-untyped-def]
    """Shifted by |q||k| (Cauchy-Schwarz) where that is small, by the maximum elsewhere."""
    s = scores(q, k)
    norm = np.linalg.norm(wide(q), axis=-1, keepdims=True) * np.linalg.norm(wide(k), axis=-1).max(-1)[..., None, None]
    bound = norm * np.float32(q.shape[-1] ** -0.5)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(bound < 10, bound, top).astype(s.dtype))
    return apply(e / e.sum(-1, keepdims=True), v)


CORRECT: dict[str, tuple[Any, str | None]] = {
    "plain": (plain, None),
    "plain, corner declared": (plain, "causal=top-left"),
    "grouped": (plain, "groups=3"),
    "tiled": (tiled, None),
    "backwards": (backwards, None),
    "scale on q": (scale_on_q, None),
    "base two": (base_two, None),
    "late division": (late_division, None),
    "sigmoid sink": (sigmoid_sink, None),
    "ALiBi shifted": (alibi_shifted, None),
    "shift by a bound": (zero_shift_by_row_bound, None),
}
