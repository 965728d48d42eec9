"""exp by a table and a polynomial: about 2⁻⁶⁷, from additions, multiplications and rint alone.

Guarantees: for dh ≤ 0 exact in float64 and |sl| ≤ 2⁻¹⁶, `exp_pair` returns w1 + w2 with
|w1 + w2 − e^(dh + sl)| ≤ 2⁻⁶⁷·e^(dh + sl) + 2⁻⁵³|w2|, and 0 for dh below −600 (then e^(dh + sl) < e^(−599));
the proof is (T1) to (T8) of compute/enclosure.md. No function of a mathematical library is trusted: the table is made
by mpmath at 140 bits, its products in double-double.
Does not: take positive arguments, or arguments whose low part is larger.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace, home, library
from compute.heads import F64

EPS = 2.0**-67
GRID = 256.0
LAST = 600
LOW = 2.0**-16  # largest |sl|
_SHIFT = 1.5 * 2.0 ** (52 - 35)  # adding and subtracting it rounds to multiples of 2^-35
_C6, _C5, _C4, _C3 = 1 / 720, 1 / 120, 1 / 24, 1 / 6


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """s + e = a + b exactly (Knuth; Møller): six additions, no condition on the sizes."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """p + e = a·b exactly (Veltkamp, Dekker), barring overflow beyond 2^996 and underflow of e."""
    p = a * b
    ah, al = _halves(a)
    bh, bl = _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(x: Any) -> tuple[Any, Any]:
    c = 134217729.0 * x
    h = c - (c - x)
    return h, x - h


@lru_cache(maxsize=1)
def table() -> tuple[F64, F64]:
    """(T1) e^(−k/256), k = 0 … 600·256: heads of 26 bits and tails, relative error at most 2⁻⁷⁸ together."""
    import mpmath

    def pairs(arguments: list[Any]) -> tuple[F64, F64]:
        values = [mpmath.exp(x) for x in arguments]
        high = np.array([float(v) for v in values])
        return high, np.array([float(v - mpmath.mpf(h)) for v, h in zip(values, high.tolist(), strict=True)])

    with mpmath.workprec(140):
        whole = pairs([mpmath.mpf(-i) for i in range(LAST + 1)])
        parts = pairs([mpmath.mpf(-j) / 256 for j in range(256)])
    high, low = two_product(whole[0][:, None], parts[0][None, :])
    low = low + (whole[0][:, None] * parts[1] + whole[1][:, None] * parts[0])
    high, low = high.ravel()[: LAST * 256 + 1], low.ravel()[: LAST * 256 + 1]
    mantissa, exponent = np.frexp(high)
    head = np.ldexp(np.rint(mantissa * 2.0**26), exponent - 26)
    return head, (high - head) + low


def table_in(xp: Namespace) -> tuple[Array, Array]:
    """The table as arrays of a library, moved to a device once."""
    return table() if xp is np else _moved(xp, int(xp.cuda.Device().id))


@lru_cache(maxsize=8)
def _moved(xp: Namespace, device: int) -> tuple[Array, Array]:
    heads, tails = table()
    return xp.asarray(heads), xp.asarray(tails)


class Work:
    """Scratch arrays of one shape, so that nothing is allocated in the loop."""

    def __init__(self, shape: tuple[int, int], xp: Namespace = np) -> None:
        self.xp = xp
        self.arrays = [xp.empty(shape) for _ in range(7)]
        self.index = xp.empty(shape, dtype=np.intp)

    def take(self, table: Array, index: Array, out: Array) -> None:
        """out ← table[index]."""
        if self.xp is np:
            np.take(table, index, out=out, mode="clip")
        else:
            out[...] = table[self.xp.clip(index, 0, len(table) - 1)]  # of NaN, the index is anything


def exp_pair(dh: F64, sl: F64, w1: F64, w2: F64, work: Work, grid: float | None) -> None:
    """Write e^(dh + sl) as w1 + w2 into the given arrays. grid: 1.5·2^52 times the unit that w1 is to be a multiple of;
    None: w1 is the nearest float64. dh and sl are kept.
    """
    xp = work.xp
    heads, tails = table_in(xp)
    r = dh.shape[0]
    a, b, c, d, e, th, q = (x[:r] for x in work.arrays)
    index = work.index[:r]
    xp.multiply(dh, -GRID, out=a)
    xp.rint(a, out=a)
    beyond = a > LAST * GRID
    some = bool(beyond.any())
    if some:
        a[beyond] = 0.0
    index[...] = a
    xp.multiply(a, 1 / GRID, out=a)
    xp.add(dh, a, out=a)  # (T2) exact: r, at most 1/512 in size
    if some:
        a[beyond] = 0.0
    work.take(heads, index, th)
    xp.add(a, sl, out=b)  # t
    xp.add(b, _SHIFT, out=c)
    xp.subtract(c, _SHIFT, out=c)  # (T3) rh, a multiple of 2^-35
    xp.subtract(a, c, out=a)
    xp.add(a, sl, out=a)  # (T4) rl
    xp.multiply(b, _C6, out=q)  # (T5) q = e^t − 1 − t
    for coefficient in (_C5, _C4, _C3, 0.5):
        xp.add(q, coefficient, out=q)
        xp.multiply(q, b, out=q)
    xp.multiply(q, b, out=q)
    xp.add(b, q, out=b)  # g = t + q
    xp.add(a, q, out=a)
    xp.multiply(a, th, out=a)  # head·(rl + q)
    work.take(tails, index, e)
    xp.multiply(b, e, out=b)
    xp.add(b, e, out=b)  # (T6) tail·(1 + g)
    xp.add(a, b, out=a)
    xp.multiply(th, c, out=c)  # (T7) head·rh, exact: 26 + 27 bits
    xp.add(th, c, out=d)
    xp.subtract(d, th, out=e)
    xp.subtract(c, e, out=c)  # exact: head + head·rh = d + c
    xp.add(c, a, out=a)
    if some:
        d[beyond], a[beyond] = 0.0, 0.0
    xp.add(d, a, out=w1)
    if grid is not None:
        xp.add(w1, grid, out=w1)
        xp.subtract(w1, grid, out=w1)
    xp.subtract(d, w1, out=d)  # (T8) exact
    xp.add(d, a, out=w2)


def exp64(x: Any, out: F64 | None = None) -> F64:
    """e^x for x ≤ 0 in float64 within 1 ulp and 2⁻¹⁰²² (assumption A1 with E = 1), where the library makes no promise.

    Below −600 it is the square of e^(x/2). Array of any shape, NumPy's or CuPy's.
    """
    x = x if library(x) == "cupy" else np.asarray(x, dtype=np.float64)
    xp = home(x)
    far = x < -LAST
    flat = xp.maximum(xp.where(far, x / 2, x), -float(LAST)).reshape(1, -1)
    w1, w2 = xp.empty(flat.shape), xp.empty(flat.shape)
    exp_pair(flat, xp.zeros(flat.shape), w1, w2, Work(flat.shape, xp), None)
    high, low = w1.reshape(x.shape), w2.reshape(x.shape)
    square, rest = two_product(high, high)
    got = xp.where(far, square + (rest + 2 * high * low), high)
    if out is None:
        return got
    out[...] = got
    return out
