"""Rotary embeddings in long double: the rotation, its inverse, and what rounding may add to either.

Guarantees: `rotated` turns pairs of channels by position · base^(−2i/d) (Su et al. 2021, section 3.2.2), complex
arrays too; `back` turns the other way, which is the transpose, so that it takes a gradient back.
Does not: rotate channels beyond `dims`, or the last one of an odd number.
"""

from __future__ import annotations

import numpy as np

from verify.checking.calls import Array, Call

Wide = np.longdouble


def rotated(array: Array, call: Call, offset: int, *, back: bool = False) -> Array:
    """Rotary embedding of (…, n, d) at positions offset, offset + 1, ...; or its transpose."""
    rope = call.spec.rope
    assert rope is not None
    x = array.astype(np.clongdouble if np.iscomplexobj(array) else Wide)
    d = rope.dims or x.shape[-1]
    position = (np.arange(x.shape[-2]) + offset).astype(Wide)
    frequency = np.power(Wide(rope.base), -2 * np.arange(d // 2).astype(Wide) / Wide(d))
    angle = position[:, None] * frequency
    cos, sin = np.cos(angle), np.sin(angle) * (-1 if back else 1)
    out = x.copy()
    first, second = _pairs(rope.layout, d)
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out


def pair_sums(array: Array, call: Call) -> Array:
    """|a| + |b| at both channels of each pair (a, b): a bound of what a rotation makes of either; |x| elsewhere."""
    rope = call.spec.rope
    assert rope is not None
    size = np.abs(array)
    first, second = _pairs(rope.layout, rope.dims or array.shape[-1])
    out = size.copy()
    out[..., first] = out[..., second] = size[..., first] + size[..., second]
    return out


def rotation_unit(call: Call, u: float, store: float, function: float) -> float:
    """Bound of a rotated entry's error over its pair's sum: of its angle, of sine and cosine, and two stores.

    u: unit roundoff, by which an angle as large as the largest position may be off; function: error of sine, cosine.
    """
    rope = call.spec.rope
    assert rope is not None
    reach = call.q.shape[2] + call.k.shape[2] + abs(rope.q_offset) + abs(rope.k_offset)
    return reach * 6 * u + 6 * function + 2 * store


def _pairs(layout: str, d: int) -> tuple[slice, slice]:
    if layout == "half":
        return slice(0, d // 2), slice(d // 2, 2 * (d // 2))
    return slice(0, 2 * (d // 2), 2), slice(1, 2 * (d // 2), 2)
