"""Canaries: does this machine's arithmetic do what a certificate assumes?

Guarantees: a canary that fails refuses to certify (CanaryFailed, with what was seen); each is shown by a test to fail
under the fault it is for: float32 or TF32 products, fixed-point emulation of float64, flush to zero in any thread,
exp(0) ≠ 1, an exp beyond its declared error, rounding that is not to nearest.
Does not: see a fast matrix product of Strassen's kind, whose errors look like rounding: that stays an assumption in
print. They run once for each (NumPy, BLAS, threads) a process, and for each device where arrays are CuPy's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from compute.errors import CanaryFailed
from compute.table_exp import Work, exp_pair
from compute.threads import blas_kernel

U = 2.0**-53


@dataclass(frozen=True)
class Arithmetic:
    """The operations under test, between host arrays; the defaults are what the enclosures use on the host.

    size: factor of the products' sizes, where only large ones reach a library's fast kernels.
    """

    matmul: Callable[[Any, Any], Any] = np.matmul
    exp: Callable[[Any], Any] = np.exp
    add: Callable[[Any, Any], Any] = np.add
    exp_ulp: float = 1.0
    size: int = 1


@dataclass(frozen=True)
class Canary:
    """name, what it would catch, and a test that returns None or what was seen."""

    name: str
    catches: str
    run: Callable[[Arithmetic], str | None]


def _integers(a: Arithmetic) -> str | None:
    rng = np.random.default_rng(20)
    n = a.size
    x, y = rng.integers(-(2**22), 2**22, (160 * n, 100)), rng.integers(-(2**22), 2**22, (100, 130 * n))
    got = a.matmul(x.astype(np.float64), y.astype(np.float64))
    some = rng.integers(0, len(x), 160)
    wrong = int((got[some] != (x[some] @ y)).sum())
    return f"{wrong} of {got.size} sums of integers below 2^51 are not exact" if wrong else None


def _wide(a: Arithmetic) -> str | None:
    n, m, k = 64 * a.size, 48 * a.size, 96
    x, y = np.zeros((n, k)), np.zeros((k, m))
    # a row and a column whose entries meet crosswise; the second pair is out of reach of 160 bits
    x[0, :2], y[:2, 0] = (1.0, 2.0**-60), (2.0**-70, 1.0)
    x[1, :2], y[:2, 1] = (1.0, 2.0**-170), (2.0**-175, 1.0)
    rng = np.random.default_rng(21)

    def numbers(shape: tuple[int, int]) -> np.ndarray[Any, Any]:
        return np.ldexp(rng.integers(1, 2**26, shape).astype(np.float64), rng.integers(-60, 60, shape) - 26)

    x[2:], y[:, 2:] = numbers((n - 2, k)), numbers((k, m - 2))
    got = a.matmul(x, y)
    if got[0, 0] != 2.0**-60 + 2.0**-70:
        return f"(1, 2^-60)·(2^-70, 1) is {float(got[0, 0]).hex()}, expected 2^-60 + 2^-70"
    if got[1, 1] != 2.0**-170 + 2.0**-175:
        return f"(1, 2^-170)·(2^-175, 1) is {float(got[1, 1]).hex()}, expected 2^-170 + 2^-175"
    for i in range(2, n, 7 * a.size):
        for j in range(2, m, 5 * a.size):
            products = (x[i] * y[:, j]).tolist()  # exact: 26 bits each
            exact, size = math.fsum(products), math.fsum(map(abs, products))
            if not abs(float(got[i, j]) - exact) <= (len(products) + 1) * U * size:
                return f"a sum of wide range is off by {abs(float(got[i, j]) - exact) / size:.1e} of its size"
    return None


def _columns(a: Arithmetic) -> str | None:
    x, y = np.ones((40 * a.size, 64)), np.ones((64, 40 * a.size))
    scale = np.ldexp(1.0, np.tile(np.arange(-300, 300, 15), a.size))
    got = a.matmul(x * scale[:, None], y * scale[None, ::-1])
    right = 64 * scale[:, None] * scale[None, ::-1]
    return None if np.array_equal(got, right) else "products whose rows differ in size by 2^600 are not exact"


def _subnormal(a: Arithmetic) -> str | None:
    # large enough that every BLAS thread gets a part: the mode is a thread's own
    n = 1024
    x, y = np.zeros((n, 48)), np.zeros((48, n))
    x[:, 0], y[0] = 2.0**-1060, 2.0**-10
    got = np.ascontiguousarray(a.matmul(x, y)).view(np.int64)
    right = np.array([2.0**-1070]).view(np.int64)[0]  # by bits: under denormals-are-zero, == holds of anything
    wrong = int((got != right).sum())
    if wrong:
        return f"{wrong} of {got.size} subnormal products are not 2^-1070 by their bits"
    tiny = np.full(1000, 2.0**-1074)
    bits = np.ascontiguousarray(a.add(tiny, tiny)).view(np.int64)
    return None if (bits == 2).all() else "2^-1074 + 2^-1074 is not 2^-1073 by its bits"


def _nearest(a: Arithmetic) -> str | None:
    one = np.ones(999)
    tie = a.add(one, np.full(999, U))
    above = a.add(one, np.full(999, U * (1 + 2.0**-40)))
    down = a.add(-one, np.full(999, -U))
    odd = a.add(one + 2 * U, np.full(999, U))
    right = (tie == 1).all() and (above == 1 + 2 * U).all() and (down == -1).all() and (odd == 1 + 4 * U).all()
    return None if right else "sums are not rounded to nearest, ties to even"


def _one(a: Arithmetic) -> str | None:
    for length in (1, 2, 3, 5, 8, 17, 33, 1000):
        if not (a.exp(np.zeros(length)) == 1).all() or not (a.exp(-np.zeros(length)) == 1).all():
            return f"exp(0) is not exactly 1 in an array of {length}"
    gone = a.exp(np.full(33, -np.inf))
    return None if (gone == 0).all() else "exp(-inf) is not 0"


def _exp(a: Arithmetic) -> str | None:
    rng = np.random.default_rng(22)
    x = -np.concatenate([rng.random(6000) * 40, rng.random(4000) * 590, 10.0 ** rng.uniform(-18, 0, 3000)])
    got = np.asarray(a.exp(x.copy()))
    w1, w2, flat = np.empty((1, x.size)), np.empty((1, x.size)), x.reshape(1, -1)
    exp_pair(flat, np.zeros_like(flat), w1, w2, Work(flat.shape), None)
    error = float(np.max(np.abs((got - w1[0]) - w2[0]) / w1[0] / (2 * U)))
    if error > a.exp_ulp:
        return f"exp is off by {error:.2f} times 2^-52, relative; {a.exp_ulp:g} was assumed"
    low = np.asarray(a.exp(np.linspace(-760.0, -700.0, 999)))
    ordered = (np.diff(low) >= 0).all() and (low <= 2.0**-1009).all() and low[0] == 0
    return None if ordered else "exp is not monotone, or not below 2^-1009, between -760 and -700"


CANARIES = (
    Canary("integer product", "float32 or TF32 products", _integers),
    Canary("wide-range product", "fixed-point emulation of float64", _wide),
    Canary("scaled product", "fixed-point emulation with an exponent shared by rows", _columns),
    Canary("subnormal product", "flush to zero in any BLAS thread", _subnormal),
    Canary("rounding", "rounding other than to nearest", _nearest),
    Canary("exp(0)", "an exp whose value at 0 is not 1", _one),
    Canary("exp", "an exp beyond its assumed error", _exp),
)


def failures(arithmetic: Arithmetic | None = None) -> list[str]:
    """What the canaries saw, one line each; empty where all is well."""
    arithmetic = Arithmetic() if arithmetic is None else arithmetic
    with np.errstate(all="ignore"):
        seen = [(c, c.run(arithmetic)) for c in CANARIES]
    return [f"{c.name}: {text} (a sign of {c.catches})" for c, text in seen if text is not None]


_passed: set[tuple[object, ...]] = set()


def environment() -> tuple[object, ...]:
    """What the canaries depend on: interpreter, NumPy, BLAS kernels, threads."""
    return (sys.version_info[:3], np.__version__, blas_kernel(), blas_threads())


def blas_threads() -> int:
    """How many threads BLAS would use now; 0 where that is not known."""
    from compute import threads

    get = threads._call("get_num_threads")
    return 0 if get is None else int(get())


def ensure(exp_ulp: float = 1.0) -> None:
    """Run the canaries unless they have passed here, with this BLAS and this number of threads.

    Raises CanaryFailed, with everything that was seen.
    """
    require((*environment(), exp_ulp), lambda: Arithmetic(exp_ulp=exp_ulp), "machine")


def require(key: tuple[object, ...], arithmetic: Callable[[], Arithmetic], what: str) -> None:
    """Run the canaries on an arithmetic unless they have passed under this key. Raises CanaryFailed."""
    if key in _passed:
        return
    seen = failures(arithmetic())
    if seen:
        raise CanaryFailed(
            f"this {what}'s arithmetic is not what a certificate assumes, so nothing is certified:\n  "
            + "\n  ".join(seen)
        )
    _passed.add(key)
