"""Upper bounds computed in float64: the few operations from which every radius is made.

Guarantees: each function returns a number or an array that is at least the exact value it names, under IEEE double
arithmetic with round to nearest (no switch of the rounding mode), whatever the order of sums. Letters in brackets
are those of compute/enclosure.md.
Does not: bound anything below; NaN and infinite input give NaN or infinity.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

U = 2.0**-53  # unit roundoff
ETA = 2.0**-1074  # least positive number; no rounding below the normal range errs by more than half of it
LEAST_NORMAL = 2.0**-1022
U32 = 2.0**-24
# (R1) fewer than 2**9 operations on non-negative numbers lose at most a factor (1 - U)**(2**9); this gives it back
UP = 1.0 + 2.0**-43
# (R1) what underflow may take from a radius on its way: fewer than 2**9 times ETA/2
FLOOR = 2.0**-1066


def growth(u: float, k: float) -> float:
    """(P1) (1 + u)^k − 1 for k roundings on one path, rounded up."""
    return math.expm1(k * math.log1p(u)) * (1 + 8 * U)


def blocked(length: int, levels: int, u: float = U) -> float:
    """(P2) relative error of sums in blocks of `length` in any order, joined in a tree of `levels` additions."""
    return ((1 + length * u) * (1 + growth(u, levels)) - 1) * (1 + 8 * U) + 2 * U * U


def sum_up(x: Any, k: int) -> Any:
    """(R2) a computed sum (in any order) of k non-negative terms, raised above the exact sum."""
    return x * (1.0 + 2 * (k + 2) * U)


def norm_up(x: F64, axis: int) -> F64:
    """(R3) upper bounds of the 2-norms of a matrix along an axis; squares neither overflow nor vanish."""
    k = x.shape[axis]
    top = float(np.abs(x).max(initial=0.0))
    if top == 0.0 or k == 0:
        return np.zeros(x.shape[1 - axis])
    exponent = max(-1000, min(1000, math.frexp(top)[1]))
    y = x * 2.0**-exponent
    squares = np.einsum("ij,ij->i" if axis == 1 else "ij,ij->j", y, y)
    root = np.sqrt(sum_up(squares, k + 2) + 4 * k * ETA) * (1 + 4 * U)
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(root, exponent) + ETA * k)


def up32(x: F64) -> NDArray[np.float32]:
    """(R4) the least float32 above x (for x within its range)."""
    return np.nextafter(x.astype(np.float32), np.float32(np.inf))


def column_scale(x: F64) -> F64:
    """Powers of two that bring the largest entry of each column into (1/2, 1]; 1 for columns of zeros."""
    top = np.abs(x).max(axis=0, initial=0.0)
    exponent = np.frexp(top)[1]
    return np.ldexp(1.0, np.where(top > 0, -np.clip(exponent, -1000, 1000), 0))


def exp_up(x: Any) -> Any:
    """e^x raised above the exact value for 0 ≤ x; inf beyond 700 (exp is assumed within 4 ulp here, far above A1)."""
    with np.errstate(over="ignore"):
        return np.where(x < 700.0, np.exp(np.minimum(x, 700.0)) * (1 + 16 * U), np.inf)


def expm1_up(x: Any) -> Any:
    """e^x − 1 raised above the exact value for x ≥ 0: by x + x² below 1 (no library function), else by exp."""
    return np.where(x < 1.0, x * (1.0 + x) * (1 + 4 * U), exp_up(x))
