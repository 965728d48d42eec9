"""Where no maximum is needed: rows whose scores are proved to be so small that exp can't over- or underflow.

Softmax is unchanged by any shift of a row's scores. By Cauchy–Schwarz |s_ij| ≤ B_i = τ‖q_i‖ max_j‖k_j‖, so where
B_i is small the shift 0 does, and two passes over the scores (the maximum, its subtraction) fall away.

Guarantees: a row is called safe only where, over the keys it may see,
    2B + ln(1/min|v|) + ln(1/u) < reach   no weight times value loses a bit to underflow (zeros of v aside), and
    B + ln(m) + ln(max|v|) + 1 < reach    no sum overflows,
with reach = −ln(smallest normal number), rounded down; the largest number reaches further. The shift being 0, nothing
is subtracted: the logit carries the rounding errors of q·k and of the folded factor, (d_k + 2)u·τΣ|q||k|, and none
that grows with B (a shift by −B adds u·2B). Whether row i is safe depends only on row i and on the keys that length
and causal corner let it see, so what stands in other keys can't change a bit of it.
Does not: look through masks, biases or windows; compute.tiled takes no bound there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace
from compute.meaning import Part
from compute.tiles import Plan

_REACH = {4: 87.0, 8: 708.0}  # −ln of the smallest normal number, rounded down
_UNIT = {4: 2.0**-24, 8: 2.0**-53}


@dataclass(frozen=True)
class Extent:
    """Over some keys: the largest norm of k, the largest |v|, the smallest non-zero |v|. Floats, or arrays of them."""

    norm: Any
    high: Any
    low: Any


def per_key(xp: Namespace, k: Array, v: Array) -> Extent:
    """Extents of single keys, (c,) each."""
    size = abs(v)
    norm = xp.sqrt((k * k).sum(axis=-1))
    if v.shape[-1] == 0:
        return Extent(norm, xp.zeros_like(norm), xp.full_like(norm, math.inf))
    low = xp.where(size == 0, k.dtype.type(math.inf), size).min(axis=-1)
    return Extent(norm, size.max(axis=-1), low)


def per_tile(part: Part, plan: Plan) -> list[Extent]:
    """Extents of the key tiles of one key-value head, of keys that exist."""
    xp, out = part.xp, []
    for cols in plan.columns(0, part.length):
        k, v = part.keys(cols), part.values(cols)
        size = abs(v)
        norm = math.sqrt(float(xp.einsum("ij,ij->i", k, k).max()))
        high, low = (float(size.max()), float(size.min())) if size.size else (0.0, math.inf)
        if low == 0.0:
            size[size == 0] = math.inf
            low = float(size.min())
        out.append(Extent(norm, high, low))
    return out


def safe_rows(part: Part, rows: slice, tiles: list[Extent], plan: Plan, q: Array) -> Array:
    """(r,) bool: whether the shift 0 is proved safe for each of these rows. q: the rows' queries, unscaled."""
    xp = part.xp
    lo, hi = part.span(rows)
    norm, high, low = 0.0, 0.0, math.inf
    cut = []
    for cols in plan.columns(lo - lo % plan.cols, hi):
        if _sees_all(part, rows, cols, plan):
            tile = tiles[cols.start // plan.cols]
            norm, high, low = _worse(norm, tile.norm), _worse(high, tile.high), min(low, tile.low)
        else:
            cut.append(cols)
    r = q.shape[0]
    seen = Extent(xp.full(r, norm), xp.full(r, high), xp.full(r, low))
    for cols in cut:
        seen = _along_corner(part, rows, cols, seen)
    return _safe(part, q, seen)


def _worse(a: float, b: float) -> float:
    """The larger; NaN wins."""
    return b if b > a or math.isnan(b) else a


def _sees_all(part: Part, rows: slice, cols: slice, plan: Plan) -> bool:
    """Whether the causal corner hides no key of the tile that `cols` lies in from any of these rows."""
    last = min(cols.start + plan.cols, part.length) - 1
    return part.spec.causal == "none" or bool(last <= rows.start + part.offset)


def _along_corner(part: Part, rows: slice, cols: slice, seen: Extent) -> Extent:
    """Extents joined with those of a tile that the corner cuts: row i sees its keys up to i + offset."""
    xp = part.xp
    keys = per_key(xp, part.keys(cols), part.values(cols))
    last = xp.clip(xp.arange(rows.start, rows.stop) + part.offset - cols.start, -1, cols.stop - cols.start - 1)
    some = last >= 0

    def join(before: Array, values: Array, combine: Any, whole: Any) -> Array:
        # CuPy has no running maximum; there a tile's keys count as a whole, which is safe but not inert to the bit.
        so_far = combine.accumulate(values)[last] if xp is np else whole(values)
        return xp.where(some, combine(before, so_far), before)

    return Extent(
        join(seen.norm, keys.norm, xp.maximum, xp.max),
        join(seen.high, keys.high, xp.maximum, xp.max),
        join(seen.low, keys.low, xp.minimum, xp.min),
    )


def _safe(part: Part, q: Array, seen: Extent) -> Array:
    xp = part.xp
    size = part.dtype.itemsize
    reach, unit = _REACH[size], _UNIT[size]
    q_norm = xp.sqrt(xp.einsum("ij,ij->i", q, q)).astype(xp.float64)
    # One part in 2^10, and 1: more than the rounding of the norms, or the underflow of a square, can hide.
    bound = abs(part.scale) * q_norm * seen.norm * (1 + 2.0**-10) + 1
    if part.softcap is not None:
        bound = xp.minimum(bound, part.softcap + 1)
    if part.sink is not None and part.sink != -math.inf:
        bound = xp.maximum(bound, abs(part.sink))
    thin = -xp.log(xp.minimum(seen.low, 1.0))
    thick = xp.log(xp.maximum(seen.high, 1.0))
    return (2 * bound + thin - math.log(unit) < reach) & (bound + thick + math.log(max(part.m, 1)) + 1 < reach)
