"""Products in which a key that takes no part is inert, whatever its entries hold.

Guarantees: in `weigh(a, b, seen)`, b's row j reaches row i only where seen[i, j]; elsewhere NaN and inf don't leak,
though 0·NaN is NaN in a plain product. Where seen, a non-finite entry comes through: +inf, −inf, or NaN, as a sum
with positive weights gives it.
Does not: cost more than one reduction over b where all of b is finite.
"""

from __future__ import annotations

import math

from compute.arrays import Array, Namespace


def finite(xp: Namespace, b: Array) -> bool:
    """Whether every entry is finite. One reduction: a finite sum proves it; only an infinite one needs a look."""
    return bool(xp.isfinite(b.sum())) or bool(xp.isfinite(b).all())


def clean(xp: Namespace, b: Array) -> Array:
    """b with zeros for its non-finite entries; b itself where there are none."""
    return b if finite(xp, b) else xp.where(xp.isfinite(b), b, b.dtype.type(0))


def weigh(xp: Namespace, a: Array, b: Array, seen: Array | None) -> Array:
    """a @ b for weights a ≥ 0 that are 0 outside `seen` (None: everything is seen)."""
    if finite(xp, b):
        return a @ b
    out = a @ clean(xp, b)
    return out + leaks(xp, b, _seen(xp, a, seen))


def weigh_signed(xp: Namespace, a: Array, b: Array, seen: Array | None) -> Array:
    """a @ b for factors of any sign: what is seen of a non-finite entry is NaN."""
    if finite(xp, b):
        return a @ b
    bad = (~xp.isfinite(b)).astype(a.dtype)
    hit = (_seen(xp, a, seen).astype(a.dtype) @ bad) > 0
    return xp.where(hit, a.dtype.type(math.nan), a @ clean(xp, b))


def leaks(xp: Namespace, b: Array, seen: Array) -> Array:
    """What the seen non-finite entries of b add to each output: 0, +inf, −inf or NaN."""
    eye = seen.astype(b.dtype)
    up, down = (eye @ (b == math.inf).astype(b.dtype)) > 0, (eye @ (b == -math.inf).astype(b.dtype)) > 0
    lost = (eye @ xp.isnan(b).astype(b.dtype)) > 0
    kind = b.dtype.type
    out = xp.where(up, kind(math.inf), xp.where(down, kind(-math.inf), kind(0)))
    return xp.where(lost | (up & down), kind(math.nan), out)


def _seen(xp: Namespace, a: Array, seen: Array | None) -> Array:
    return xp.ones(a.shape, dtype=bool) if seen is None else xp.broadcast_to(seen, a.shape)
