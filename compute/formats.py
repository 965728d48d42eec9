"""Number formats by emulation: rounding to nearest even, scaled fp8, and products in reduced precision.

Guarantees: `round_to` is one correct rounding from the value given (no double rounding), for every format that
`compute.roundings.limits` names, subnormal numbers included; the result is held exactly in the input's own dtype.
Does not: emulate a device's order of summation, or formats narrower than 8 bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compute.arrays import Array, namespace
from compute.checks import flag, required
from compute.errors import InputError
from compute.roundings import limits


def round_to(x: Array, name: str, *, saturate: bool = False) -> Array:
    """x (float32 or float64) rounded to the format `name`, ties to even, in x's dtype.

    What overflows becomes inf (NaN in e4m3, which has no inf), or the largest finite number where saturate is set, as
    fp8 hardware does. Raises InputError for an unknown format or another dtype.

    >>> import numpy as np
    >>> round_to(np.array([0.1, 1e5]), "fp16").tolist()
    [0.0999755859375, inf]
    >>> round_to(np.array([0.01, 1e5]), "e4m3", saturate=True).tolist()
    [0.009765625, 448.0]
    """
    xp, limit = required(x=x), limits(name)
    flag("saturate", saturate)
    if str(x.dtype) not in ("float32", "float64"):
        raise InputError(f"x has dtype {x.dtype}: expected float32 or float64, which hold every narrower format")
    if limit.name == str(x.dtype) or limit.name == "float64":
        return x.copy()
    with np.errstate(all="ignore"):
        wide = x.astype(xp.float64)
        exponent = xp.frexp(wide)[1] - 1  # |x| in [2^e, 2^(e+1))
        bits, least = round(-math.log2(limit.unit)), round(math.log2(limit.normal))
        quantum = xp.maximum(exponent, least) - (bits - 1)
        # Two steps, so that the power of two itself can't leave float64's range.
        half = quantum // 2
        scaled = xp.ldexp(xp.ldexp(wide, -half), half - quantum)
        out = xp.ldexp(xp.ldexp(xp.rint(scaled), half), quantum - half)
        over = abs(out) > limit.largest
        beyond = limit.largest if saturate else math.nan if limit.name == "float8_e4m3fn" else math.inf
        out = xp.where(over, xp.copysign(beyond, wide), out)
        return xp.where(xp.isnan(wide), math.nan, out).astype(x.dtype)


def scaled(x: Array, name: str, axes: tuple[int, ...] | None = None) -> tuple[Array, Array]:
    """(x in the format, descale factor): the largest |x| over `axes` (None: all) lands on the largest number.

    descale has x's rank (0-d where axes is None); rounded · descale is near x. A block of zeros has descale 1.
    """
    xp = namespace(x=x)
    top = abs(x).max(axis=axes, keepdims=axes is not None, initial=0)
    descale = xp.where(top > 0, top / x.dtype.type(limits(name).largest), x.dtype.type(1))
    return round_to(x / descale, name, saturate=True), descale


def split_bf16(x: Array, count: int = 2) -> list[Array]:
    """bfloat16 parts whose sum is near x: x1 = bf16(x), x2 = bf16(x − x1), … (each difference is exact)."""
    parts: list[Array] = []
    rest = x
    for _ in range(count):
        parts.append(round_to(rest, "bfloat16"))
        rest = rest - parts[-1]
    return parts


def product(a: Array, b: Array, *, products: str = "exact", accumulate: str = "float32") -> Array:
    """a @ b with its factors and its sums in reduced precision; the arrays hold `accumulate`'s numbers.

    products: "exact", "tf32" (both factors rounded), "bf16x3" (three products of bfloat16 parts). accumulate:
    "float32" and "float64" are the array's own product; a narrower format rounds after every term, in order of the
    inner index (a multiply-add each: float32 holds products of 16-bit factors exactly, and rounding its sums to
    at most 11 bits again gives the correctly rounded ones).
    """
    if products == "tf32":
        a, b = round_to(a, "tf32"), round_to(b, "tf32")
    elif products == "bf16x3":
        (a1, a2), (b1, b2) = split_bf16(a), split_bf16(b)
        return a1 @ b1 + (a1 @ b2 + a2 @ b1)
    elif products != "exact":
        raise InputError(f"products is {products!r}: expected 'exact', 'tf32' or 'bf16x3'")
    if limits(accumulate).name in ("float32", "float64"):
        return a @ b
    xp = namespace(a=a, b=b)
    total = xp.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    for c in range(a.shape[-1]):
        total = round_to(total + a[..., :, c, None] * b[..., None, c, :], accumulate)
    return total


def in_order(x: Array, accumulate: str) -> Array:
    """Sum over the last axis (kept), one term after the other in the format `accumulate`."""
    if limits(accumulate).name in ("float32", "float64"):
        return x.sum(axis=-1, keepdims=True)
    total: Any = x[..., :0].sum(axis=-1, keepdims=True)
    for c in range(x.shape[-1]):
        total = round_to(total + x[..., c : c + 1], accumulate)
    return total
