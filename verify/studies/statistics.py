"""The statistics of the studies: intervals over replicates, families of tests, agreement within a margin.

Guarantees: standard errors are between independent replicates (or clusters), never between dependent entries; a
family of tests is judged together (Holm); agreement is claimed only by a test of its own (two one-sided tests),
since failing to reject shows nothing.
Does not: choose what is tested: a study declares that.

Source: Holm (1979), A simple sequentially rejective multiple test procedure; Schuirmann (1987), A comparison of the
two one-sided tests procedure and the power approach; Welch (1947) and Satterthwaite (1946) for unequal variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from compute.sampling import Estimate
from compute.streams import Stream

Array = npt.NDArray[np.float64]
LEVEL = 0.95
# A study says "differs" below this family-wise p: one false alarm in a thousand runs of a right law.
DIFFERS_BELOW = 1e-3
# A study says "agrees within the margin" at this level of two one-sided tests.
AGREES_BELOW = 0.05


@dataclass(frozen=True)
class Measured:
    """An estimate with its standard error and degrees of freedom."""

    value: float
    standard_error: float
    freedom: float

    @classmethod
    def of(cls, estimate: Estimate) -> Measured:
        return cls(estimate.value, estimate.standard_error, estimate.replicates - 1)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Student's confidence interval."""
        from scipy.stats import t

        half = float(t.ppf(0.5 + level / 2, self.freedom)) * self.standard_error
        return self.value - half, self.value + half

    def score(self, law: float) -> float:
        """(value − law)/standard error."""
        return (self.value - law) / self.standard_error

    def p_equal(self, law: float) -> float:
        """Two-sided p-value of `the expectation is law`."""
        from scipy.stats import t

        return float(2 * t.sf(abs(self.score(law)), self.freedom))

    def p_outside(self, law: float, margin: float) -> float:
        """p-value of `the expectation is outside law ± margin`: small means agreement within the margin."""
        from scipy.stats import t

        low = float(t.sf((self.value - law + margin) / self.standard_error, self.freedom))
        high = float(t.cdf((self.value - law - margin) / self.standard_error, self.freedom))
        return max(low, high)


def log_slope(a: Measured, b: Measured, x_a: float, x_b: float) -> Measured:
    """Slope of ln(value) against ln(x) between two independent points, by the delta method, Welch's freedom."""
    span = math.log(x_b / x_a)
    va, vb = (a.standard_error / a.value) ** 2, (b.standard_error / b.value) ** 2
    freedom = (va + vb) ** 2 / (va**2 / a.freedom + vb**2 / b.freedom)
    return Measured(math.log(b.value / a.value) / span, math.sqrt(va + vb) / abs(span), freedom)


def fitted_slope(points: Sequence[Measured], x: Sequence[float]) -> Measured:
    """Weighted least squares of ln(value) on ln(x), weights the inverse squared relative standard errors."""
    lx = np.log(np.asarray(x, dtype=np.float64))
    ly = np.array([math.log(p.value) for p in points])
    w = np.array([(p.value / p.standard_error) ** 2 for p in points])
    centre = float(w @ lx / w.sum())
    spread = float(w @ (lx - centre) ** 2)
    freedom = sum(p.freedom for p in points)
    return Measured(float(w @ ((lx - centre) * ly)) / spread, 1 / math.sqrt(spread), freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: comparing each with α controls the family-wise error at α.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    count = len(p_values)
    order = sorted(range(count), key=lambda i: p_values[i])
    adjusted, running = [0.0] * count, 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (count - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def global_p(p_values: Sequence[float]) -> tuple[float, float]:
    """χ² = Σ z² of independent two-sided p-values turned into normal scores, and its p-value."""
    from scipy.stats import chi2, norm

    total = float((norm.isf(np.clip(np.asarray(p_values), 1e-300, 1.0) / 2) ** 2).sum())
    return total, float(chi2.sf(total, len(p_values)))


def cluster_bootstrap(
    clusters: Array,
    statistic: Literal["mean", "median"],
    *,
    seed: int,
    experiment: str,
    resamples: int = 2000,
    level: float = LEVEL,
) -> tuple[float, float, float]:
    """Value and percentile interval of a statistic over columns, resampling whole clusters (rows).

    clusters: (clusters, columns); the cluster mean is taken per column, then the statistic over columns: "mean",
    "median". Deterministic: the resamples come from the stream named.
    """
    count = clusters.shape[0]
    picks = Stream(seed, f"bootstrap/{experiment}").integers(count, (resamples, count))
    draws = np.array([_over(clusters[rows].mean(axis=0), statistic) for rows in picks])
    low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2])
    return _over(clusters.mean(axis=0), statistic), float(low), float(high)


def _over(values: Array, statistic: str) -> float:
    return float(np.median(values)) if statistic == "median" else float(values.mean())
