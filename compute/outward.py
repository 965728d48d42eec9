"""Upper bounds computed in float64: the few operations from which every radius is made.

Guarantees: each function returns a number or an array that is at least the exact value it names, under IEEE double
arithmetic with round to nearest (no switch of the rounding mode), whatever the order of sums, on NumPy and on CuPy
arrays alike; no function of a mathematical library is trusted. Letters in brackets are those of compute/enclosure.md.
Does not: bound anything below; NaN and infinite input give NaN or infinity.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace, home

U = 2.0**-53  # unit roundoff
ETA = 2.0**-1074  # least positive number; no rounding below the normal range errs by more than half of it
LEAST_NORMAL = 2.0**-1022
U32 = 2.0**-24
# (R1) fewer than 2**9 operations on non-negative numbers lose at most a factor (1 - U)**(2**9); this gives it back
UP = 1.0 + 2.0**-43
# (R1) what underflow may take from a radius on its way: fewer than 2**9 times ETA/2
FLOOR = 2.0**-1066
LOG2_E = 1.4426950408889645  # above log2 e


def growth(u: float, k: float) -> float:
    """(P1) (1 + u)^k − 1 for k roundings on one path, rounded up."""
    return math.expm1(k * math.log1p(u)) * (1 + 8 * U)


def blocked(length: int, levels: int, u: float = U) -> float:
    """(P2) relative error of sums in blocks of `length` in any order, joined in a tree of `levels` additions."""
    return ((1 + length * u) * (1 + growth(u, levels)) - 1) * (1 + 8 * U) + 2 * U * U


def sum_up(x: Any, k: int) -> Any:
    """(R2) a computed sum (in any order) of k non-negative terms, raised above the exact sum."""
    return x * (1.0 + 2 * (k + 2) * U)


def largest(x: Array, axis: int | None = None, least: float = 0.0) -> Array:
    """The maximum along an axis, and at least `least`, which is also that of an axis without entries."""
    xp = home(x)
    if x.shape[axis] if axis is not None else x.size:
        return xp.maximum(x.max(axis=axis), least)
    return xp.full([] if axis is None else x.shape[:axis] + x.shape[axis + 1 :], least)


def row_dot(x: Array, y: Array) -> Array:
    """Σ_j x_ij·y_ij, a sum in any order; one pass over the matrices, without a product of their size."""
    return np.vecdot(x, y) if isinstance(x, np.ndarray) else _device_row_dot(home(x))(x, y, axis=1)


@cache
def _device_row_dot(xp: Namespace) -> Any:
    return xp.ReductionKernel("T x, T y", "T out", "x * y", "a + b", "out = a", "0", "row_dot")


def norm_up(x: Array, axis: int) -> Array:
    """(R3) upper bounds of the 2-norms of a matrix along an axis; squares neither overflow nor vanish."""
    xp = home(x)
    k = x.shape[axis]
    top = float(largest(abs(x)))
    if top == 0.0 or k == 0:
        return xp.zeros(x.shape[1 - axis])
    exponent = max(-1000, min(1000, math.frexp(top)[1]))
    y = x * 2.0**-exponent
    squares = row_dot(y, y) if axis == 1 else xp.einsum("ij,ij->j", y, y)
    root = xp.sqrt(sum_up(squares, k + 2) + 4 * k * ETA) * (1 + 4 * U)
    with np.errstate(over="ignore"):
        return xp.ldexp(root, exponent) + ETA * k


def up32(x: Array) -> Array:
    """(R4) the least float32 above x (for x within its range)."""
    return home(x).nextafter(x.astype(np.float32), np.float32(np.inf))


def column_scale(x: Array) -> Array:
    """Powers of two that bring the largest entry of each column into (1/2, 1]; 1 for columns of zeros."""
    xp = home(x)
    top = largest(abs(x), 0)
    exponent = xp.frexp(top)[1]
    return xp.ldexp(xp.ones(top.shape), xp.where(top > 0, -xp.clip(exponent, -1000, 1000), 0))


def exp_up(x: Array) -> Array:
    """(R8) e^x raised above the exact value for x ≥ 0: 1 + x + x² below 1, else 2^⌈x·log2 e⌉; inf beyond 700."""
    xp = home(x)
    with np.errstate(over="ignore", invalid="ignore"):
        power = xp.ceil(xp.minimum(x, 700.0) * LOG2_E)
        far = xp.where(x < 700.0, xp.ldexp(xp.ones(x.shape), power.astype(np.int32)), np.inf)
        return xp.where(x < 1.0, (1.0 + x * (1.0 + x)) * (1 + 4 * U), far)


def expm1_up(x: Array) -> Array:
    """(R8) e^x − 1 raised above the exact value for x ≥ 0: x + x² below 1, else as e^x."""
    return home(x).where(x < 1.0, x * (1.0 + x) * (1 + 4 * U), exp_up(x))
