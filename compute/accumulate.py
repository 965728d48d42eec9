"""Accumulators that stream and merge: moments up to the fourth, and a histogram that spans all magnitudes.

Guarantees: merging two accumulators gives what one would hold that had seen both inputs: to the bit for the
histogram (integer counts), up to float64 rounding for the moments (pairwise central sums, no cancellation of raw
power sums). The order of merging does not matter beyond that rounding.
Does not: keep the values; say anything about the dependence between them (see `compute.sampling`).

Source: Chan, Golub, LeVeque (1983), Algorithms for computing the sample variance; Pébay (2008), Formulas for robust,
one-pass parallel computation of covariances and arbitrary-order statistical moments, SAND2008-6212, section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compute.errors import InputError

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Count, mean, and the sums of the second to fourth powers of the deviations from the mean.

    >>> m = Moments.of(np.array([1.0, 2.0])) + Moments.of(np.array([3.0, 6.0]))
    >>> m.count, m.mean, m.variance
    (4, 3.0, 3.5)
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    m4: float = 0.0

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Moments:
        """Moments of an array of any shape. Raises InputError when a value is NaN or infinite."""
        flat = np.asarray(values, dtype=np.float64).ravel()
        if flat.size == 0:
            return cls()
        if not np.isfinite(flat).all():
            raise InputError("moments of values that are not all finite: expected numbers without NaN and inf")
        mean = float(flat.mean())
        dev = flat - mean
        # The rounding of the mean leaves a small first moment; removing it keeps m2 exact to rounding.
        shift = float(dev.mean())
        dev -= shift
        square = dev * dev
        return cls(flat.size, mean + shift, float(square.sum()), float((square * dev).sum()), float(square @ square))

    def __add__(self, other: Moments) -> Moments:
        if self.count == 0:
            return other
        if other.count == 0:
            return self
        a, b = self.count, other.count
        n = a + b
        delta = other.mean - self.mean
        m2 = self.m2 + other.m2 + delta**2 * a * b / n
        m3 = self.m3 + other.m3 + delta**3 * a * b * (a - b) / n**2 + 3 * delta * (a * other.m2 - b * self.m2) / n
        m4 = (
            self.m4
            + other.m4
            + delta**4 * a * b * (a * a - a * b + b * b) / n**3
            + 6 * delta**2 * (a * a * other.m2 + b * b * self.m2) / n**2
            + 4 * delta * (a * other.m3 - b * self.m3) / n
        )
        return Moments(n, self.mean + delta * b / n, m2, m3, m4)

    @property
    def variance(self) -> float:
        """Mean squared deviation (divided by the count)."""
        return self.m2 / self.count if self.count else math.nan

    @property
    def sample_variance(self) -> float:
        """Unbiased for independent values (divided by the count less one)."""
        return self.m2 / (self.count - 1) if self.count > 1 else math.nan

    @property
    def skewness(self) -> float:
        """Third central moment over the variance to the 3/2; NaN where the variance is 0."""
        return (self.m3 / self.count) / self.variance**1.5 if self.m2 > 0 else math.nan

    @property
    def excess_kurtosis(self) -> float:
        """Fourth central moment over the squared variance, less 3; NaN where the variance is 0."""
        return (self.m4 / self.count) / self.variance**2 - 3.0 if self.m2 > 0 else math.nan

    @property
    def standard_error(self) -> float:
        """Standard error of the mean, if the values are independent."""
        return math.sqrt(self.sample_variance / self.count) if self.count > 1 else math.nan


class LogHistogram:
    """Counts of non-negative numbers in bins of equal ratio: quantiles over hundreds of decades.

    Each power of two is cut into `per_octave` bins of equal width; a quantile is off by at most a factor of
    1 + 1/per_octave. Zero and values below 2^-1074 have a bin of their own.

    >>> h = LogHistogram(); h.add(np.array([1e-30, 1e-3, 1e-3, 1.0]))
    >>> bool(0.99e-3 < h.quantile(0.5) < 1.01e-3)
    True
    """

    def __init__(self, per_octave: int = 128) -> None:
        if per_octave < 1:
            raise InputError(f"per_octave is {per_octave}: expected at least 1")
        self.per_octave = per_octave
        self._bins: dict[int, int] = {}
        self._zero = 0

    @property
    def count(self) -> int:
        return self._zero + sum(self._bins.values())

    def add(self, values: npt.ArrayLike) -> None:
        """Count values. Raises InputError for a negative, NaN or infinite one."""
        flat = np.asarray(values, dtype=np.float64).ravel()
        if flat.size and not (np.isfinite(flat).all() and flat.min() >= 0):
            raise InputError("a log histogram holds finite numbers >= 0")
        positive = flat[flat > 0]
        self._zero += int(flat.size - positive.size)
        mantissa, exponent = np.frexp(positive)
        place = exponent.astype(np.int64) * self.per_octave
        place += np.floor((mantissa - 0.5) * (2 * self.per_octave)).astype(np.int64)
        for where, times in zip(*np.unique(place, return_counts=True), strict=True):
            self._bins[int(where)] = self._bins.get(int(where), 0) + int(times)

    def __add__(self, other: LogHistogram) -> LogHistogram:
        if self.per_octave != other.per_octave:
            raise InputError(f"histograms of {self.per_octave} and {other.per_octave} bins an octave do not merge")
        merged = LogHistogram(self.per_octave)
        merged._zero = self._zero + other._zero
        for where in self._bins.keys() | other._bins.keys():
            merged._bins[where] = self._bins.get(where, 0) + other._bins.get(where, 0)
        return merged

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogHistogram):
            return NotImplemented
        return (self.per_octave, self._zero, self._bins) == (other.per_octave, other._zero, other._bins)

    __hash__ = None  # type: ignore[assignment]

    def quantile(self, share: float) -> float:
        """The middle of the bin that holds the order statistic number ceil(share·count), at least the first."""
        if not 0 <= share <= 1 or self.count == 0:
            raise InputError(f"quantile {share} of {self.count} values: expected 0 <= share <= 1 and a value")
        rank = max(1, math.ceil(share * self.count))
        seen = self._zero
        if seen >= rank:
            return 0.0
        for where in sorted(self._bins):
            seen += self._bins[where]
            if seen >= rank:
                break
        octave, part = divmod(where, self.per_octave)
        return math.ldexp(0.5 + (part + 0.5) / (2 * self.per_octave), octave)

    def share_below(self, threshold: float) -> float:
        """Share of the values whose whole bin lies below the threshold's bin (so bins decide, not values)."""
        if self.count == 0:
            return math.nan
        mantissa, exponent = math.frexp(threshold)
        limit = exponent * self.per_octave + math.floor((mantissa - 0.5) * 2 * self.per_octave)
        below = sum(times for where, times in self._bins.items() if where < limit)
        return (below + self._zero) / self.count
