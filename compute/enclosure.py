"""A value with a proven radius.

Guarantees: the exact real value lies in [mid − rad, mid + rad], entry by entry, under the assumptions that the
certificate prints; with a `low` part the centre is mid + low (an unevaluated sum). `rounded` gives the correctly
rounded number or says "undecided".
Does not: compute enclosures (compute.tier1, tier2 and arb do), or hold for NaN entries, which mean "no value".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace, home, widened
from compute.errors import InputError
from compute.outward import ETA, U
from compute.slices import bits_of, pair_tree
from compute.table_exp import two_sum

_TARGETS = {"float32": np.float32, "float16": np.float16, "float64": np.float64}
_NAMES = {"f32": "float32", "fp32": "float32", "f64": "float64", "fp64": "float64", "fp16": "float16"}


@dataclass(frozen=True)
class Enclosure:
    """mid, rad and low, arrays of one shape in float64: |exact − (mid + low)| ≤ rad. low is None for 0.

    rad is inf where nothing could be bounded, NaN (with mid NaN) where the meaning itself is NaN. The arrays are of the
    library of the call, NumPy or CuPy, and so is everything that is returned.
    """

    mid: Array
    rad: Array
    low: Array | None = None

    @property
    def xp(self) -> Namespace:
        """The library of the arrays."""
        return home(self.mid)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return tuple(self.mid.shape)

    def contains(self, y: Any) -> Array:
        """Where the float y could be the exact value: |y − (mid + low)| ≤ rad, decided without rounding.

        A True is certain or within one rounding of the radius's edge; a False is certain. Nothing is broadcast:
        InputError for another shape.
        """
        xp = self.xp
        try:
            y = np.asarray(y, dtype=np.float64) if xp is np else widened(xp.asarray(y))
        except (TypeError, ValueError) as error:
            raise InputError(f"the value is a {type(y).__name__}: expected numbers, as an array") from error
        if y.shape != self.mid.shape:
            raise InputError(f"the value has shape {y.shape}, the enclosure {self.mid.shape}: expected one shape")
        with np.errstate(invalid="ignore", over="ignore"):
            # (R9) y − mid − low as exact sums; only the last additions are rounded
            gap, rest = two_sum(y, -self.mid)
            more = 0.0 * gap
            if self.low is not None:
                gap, more = two_sum(gap, -self.low)
            gap = abs(gap + (more + rest))
            near = gap * (1 - 4 * U) - 4 * U * (abs(more) + abs(rest)) - ETA <= self.rad
            both_nan = xp.isnan(y) & xp.isnan(self.mid)
            unbounded = (self.rad == math.inf) & ~xp.isnan(y)
        return xp.asarray(near | both_nan | unbounded)

    def lower(self) -> Array:
        """A float that is at most the exact value."""
        return self._end(-1.0)

    def upper(self) -> Array:
        """A float that is at least the exact value."""
        return self._end(1.0)

    def _end(self, sign: float) -> Array:
        xp = self.xp
        low = 0.0 * (self.rad == self.rad) if self.low is None else self.low
        with np.errstate(invalid="ignore", over="ignore"):
            # (R5) low ± rad is rounded away from the centre, and so is the sum with mid
            side = xp.nextafter(low + sign * self.rad, sign * math.inf)
            end = xp.nextafter(self.mid + side, sign * math.inf)
            return xp.where((self.rad == 0) & (low == 0), self.mid, end)

    def rounded(self, fmt: str = "float32") -> tuple[Array, Array]:
        """(array, undecided): the exact value correctly rounded to nearest, and where that could not be decided.

        fmt: "float32", "float16" or "float64". Decided means that both ends of the enclosure round to the same
        number; what an undecided entry holds is the rounded centre.
        """
        name = _NAMES.get(fmt, fmt) if isinstance(fmt, str) else ""
        if name not in _TARGETS:
            raise InputError(f"format is {fmt!r}: expected one of {', '.join(_TARGETS)}")
        if self.xp is not np:  # CuPy's conversion to float32 flushes what is subnormal there
            array, undecided = self.host().rounded(name)
            return self.xp.asarray(array), self.xp.asarray(undecided)
        kind = _TARGETS[name]
        with np.errstate(over="ignore", invalid="ignore"):
            if name == "float64":
                return self._rounded64()
            a, b = self.lower().astype(kind), self.upper().astype(kind)
            centre = (self.mid if self.low is None else self.mid + self.low).astype(kind)
            nothing = np.isnan(self.mid)
            undecided = ~(a == b) & ~nothing
            return np.where(undecided | nothing, centre, a), undecided

    def _rounded64(self) -> tuple[Array, Array]:
        """(R6) mid the rounded sum: decided where low ± rad stays within half the gap to each neighbour."""
        low = np.zeros(self.mid.shape) if self.low is None else self.low
        mid = self.mid + low
        rest = low - (mid - self.mid)  # exact, since |low| is at most an ulp of mid where it matters
        away = np.nextafter(abs(rest) + self.rad, math.inf)
        gap_up, gap_down = np.nextafter(mid, math.inf) - mid, mid - np.nextafter(mid, -math.inf)
        decided = (away < np.minimum(gap_up, gap_down) / 2) | (self.rad == 0) & (rest == 0)
        normalised = abs(low) <= abs(self.mid) * 2.0**-50
        return mid, ~(decided & normalised) & ~np.isnan(mid)

    def host(self) -> Enclosure:
        """The same enclosure in NumPy arrays."""
        if self.xp is np:
            return self
        move = self.xp.asnumpy
        return Enclosure(move(self.mid), move(self.rad), None if self.low is None else move(self.low))

    def __getitem__(self, index: Any) -> Enclosure:
        return Enclosure(self.mid[index], self.rad[index], None if self.low is None else self.low[index])

    def reshape(self, *shape: int) -> Enclosure:
        """The same entries in another shape."""
        low = None if self.low is None else self.low.reshape(shape)
        return Enclosure(self.mid.reshape(shape), self.rad.reshape(shape), low)


def add_up(parts: Enclosure, axis: int | tuple[int, ...]) -> Enclosure:
    """(R7) the enclosure of a sum over axes: radii add, and so does the rounding of the sum of the centres."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _added(parts, axis)


def _added(parts: Enclosure, axis: int | tuple[int, ...]) -> Enclosure:
    mid, low = parts.mid, parts.low
    axes = tuple(a % mid.ndim for a in ((axis,) if isinstance(axis, int) else axis))
    count = math.prod(mid.shape[a] for a in axes)
    if low is None or not count:
        total = mid.sum(axis=axes)
        size = abs(mid).sum(axis=axes) if count > 1 else 0.0
    else:
        # heads in a tree without error; only the low parts are rounded
        first = (*axes, *(a for a in range(mid.ndim) if a not in axes))
        shape = (count, *(mid.shape[a] for a in first[len(axes) :]))
        heads, lows = (x.transpose(first).reshape(shape) for x in (mid, low))
        total, lost = pair_tree(heads)
        total, low = two_sum(total, lost + lows.sum(axis=0))
        size = abs(lows).sum(axis=0) + 2 * bits_of(count) * U * abs(heads).sum(axis=0)
    rounding = (count + 8) * U * size if count > 1 else 0.0
    rad = (parts.rad.sum(axis=axes) + rounding) * (1 + 4 * (count + 8) * U)
    rad = parts.rad.sum(axis=axes) if count == 1 else rad
    xp = parts.xp
    lost = ~xp.isfinite(total) & xp.isfinite(mid).all(axis=axes)  # a sum that overflowed has no bound
    total, rad = xp.where(lost, 0.0, total), xp.where(lost, math.inf, rad)
    return Enclosure(total, rad, None if low is None else xp.where(lost, 0.0, low))
