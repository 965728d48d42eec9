"""Rotary position embedding: turns channel pairs by an angle that grows with the position.

Guarantees: angles, cosines and the turn itself are formed in float64 and rounded once, whatever the format of the
input, so positions never lose bits (float16 angles are a known field fault).
Does not: scale the frequencies for long contexts; pass tables to `turn` for that.

Source: Su et al. 2021, RoFormer, section 3.2.2, equations (14) to (16), (34).
"""

from __future__ import annotations

from compute.arrays import Array, Namespace
from compute.errors import InputError
from compute.spec import Rope, RopeLayout


def turn(xp: Namespace, x: Array, cos: Array, sin: Array, layout: RopeLayout) -> Array:
    """x·cos + partner(x)·sin over the last axis, for tables as wide as x (each half of a table is used).

    "half": the partner of (a, b) is (−b, a) for the two halves a, b. "interleaved": the same for neighbours.
    """
    partner = xp.empty_like(x)
    if layout == "half":
        half = x.shape[-1] // 2
        partner[..., :half] = -x[..., half:]
        partner[..., half:] = x[..., :half]
    else:
        partner[..., 0::2] = -x[..., 1::2]
        partner[..., 1::2] = x[..., 0::2]
    return x * cos + partner * sin


def tables(xp: Namespace, positions: Array, dims: int, rope: Rope) -> tuple[Array, Array]:
    """Cosines and sines, each (len(positions), dims), in float64."""
    frequency = rope.base ** (-2.0 * xp.arange(dims // 2, dtype=xp.float64) / dims)
    angle = positions.astype(xp.float64)[:, None] * frequency[None, :]
    wide = xp.concatenate([angle, angle], axis=1) if rope.layout == "half" else xp.repeat(angle, 2, axis=1)
    return xp.cos(wide), xp.sin(wide)


def check(rope: Rope, d_k: int) -> None:
    """InputError unless the rotary dims fit into d_k."""
    dims = d_k if rope.dims is None else rope.dims
    if dims > d_k or dims % 2:
        raise InputError(f"rope turns {dims} channels and d_k is {d_k}: expected an even number, at most d_k")


def rotate(xp: Namespace, x: Array, first: int, rope: Rope, *, back: bool = False) -> Array:
    """x (…, n, d_k) turned for positions first, first + 1, …; back=True turns by the opposite angle.

    The result has x's dtype; the arithmetic is float64.
    """
    dims = x.shape[-1] if rope.dims is None else rope.dims
    cos, sin = tables(xp, first + xp.arange(x.shape[-2]), dims, rope)
    turned = x.copy()
    turned[..., :dims] = turn(xp, x[..., :dims].astype(xp.float64), cos, -sin if back else sin, rope.layout)
    return turned
