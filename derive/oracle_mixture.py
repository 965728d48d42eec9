"""Expectations when σ itself is random: finite d_k, and products of chi variates.

Guarantees: `ScaleLaw` holds the law of log σ as weights on a uniform grid, exact to rounding (the densities are
smooth, so the trapezoidal rule converges geometrically); `mix` integrates any smooth function of σ against it with
few evaluations, and returns an error estimate from the decay of the function's orthogonal coefficients.
Does not: simulate.

Given the query, scores against i.i.d. standard normal keys are exactly i.i.d. N(0, s² ‖q‖²), and ‖q‖² is χ²_{d_k}.
So every expectation at finite d_k is E F(s χ_{d_k}), F the expectation at fixed σ. F is smooth in σ, not in σ² at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]

_DEPTH = 42.0  # weights below e^-42 of the largest are left out
_TOLERANCE = 1e-12  # relative, of the error stated for a mixture; the actual error is smaller by orders of magnitude
_MOST = 96  # nodes at most


@dataclass(frozen=True)
class ScaleLaw:
    """The law of log σ: weights (summing to 1) at step * (first + 0, 1, 2, …), shifted by `shift`."""

    first: int
    step: float
    weights: Array
    shift: float = 0.0

    def sigma(self) -> Array:
        out: Array = np.exp(self.shift + self.step * (self.first + np.arange(self.weights.size)))
        return out

    def times(self, other: ScaleLaw) -> ScaleLaw:
        """The law of the product of two independent scales on grids of one step: a convolution."""
        if self.step != other.step:
            raise ValueError("the two laws must share one step")
        weights = np.convolve(self.weights, other.weights)
        return ScaleLaw(self.first + other.first, self.step, weights, self.shift + other.shift)

    def scaled(self, factor: float) -> ScaleLaw:
        """The law of factor * σ."""
        return ScaleLaw(self.first, self.step, self.weights, self.shift + math.log(factor))


def step_for(*dofs: float) -> float:
    """A step fine enough for log chi of each of these degrees of freedom, and for their convolutions.

    The standard deviation of log χ_d is about 1/√(2d), and its density is analytic in |Im| < π/4. The upper limit is
    for the functions that are averaged: at a million keys they are analytic to about |Im| < 1/2 around σ = √(2 log n).
    """
    return min(0.07, *(0.42 / math.sqrt(2 * d) for d in dofs))


@lru_cache(maxsize=64)
def chi(d: float, step: float) -> ScaleLaw:
    """The law of χ_d, d > 0: density of θ = log χ_d is 2^(1-d/2) e^(dθ - e^(2θ)/2) / Γ(d/2)."""
    peak = 0.5 * math.log(d)

    def log_density(theta: Array) -> Array:
        out: Array = d * theta - 0.5 * np.exp(2 * theta) + (1 - d / 2) * math.log(2) - gammaln(d / 2)
        return out

    # With θ = peak + x the log density falls by d (e^(2x) - 1 - 2x)/2: at least d x² above, d x² / 3 for -1 ≤ x ≤ 0,
    # d (|x| - 1/2) below, and d e^(2x) / 4 for x ≥ 1.
    below = math.sqrt(3 * _DEPTH / d) if d > 3 * _DEPTH else _DEPTH / d + 0.5
    above = min(math.sqrt(_DEPTH / d), max(1.0, 0.5 * math.log(4 * _DEPTH / d)))
    first, last = math.floor((peak - below) / step), math.ceil((peak + above) / step)
    theta: Array = step * np.arange(first, last + 1, dtype=np.float64)
    weights = np.exp(log_density(theta)) * step
    return ScaleLaw(first, step, weights / weights.sum())


def mix(function: Callable[[float], Array], laws: Sequence[ScaleLaw], unit: float = 1.0) -> tuple[Array, Array]:
    """E function(σ) under each of several laws, and an estimate of its absolute error: arrays (laws, components).

    function: vector-valued, smooth in asinh(σ/unit): observables of rows are even in σ and vary by powers of it when
    it is large. laws: on one grid (of one step and shift), whose points they share, so that the function is evaluated
    once for all of them. Raises ValueError for laws on different grids.

    The mean of the laws has its own Gauss rule in asinh(σ/unit). Its N nodes give the function's first N coefficients
    c_k in the orthonormal polynomials p_k of that measure, and the mean under a law is Σ_k c_k E p_k: for the measure
    itself the Gauss rule, and nearly as exact for laws whose density relative to it is smooth. N is raised until the
    last coefficients say that the rules have converged.
    """
    sigma, weights = _union(laws)
    measure = _Measure(np.arcsinh(sigma / unit), weights.mean(axis=0))
    # About what was enough where it was tried; a wrong guess costs time and nothing else.
    count = min(_MOST, 10 + round((70 if len(laws) == 1 else 90) * unit * measure.spread()))
    while True:
        if count >= 0.85 * sigma.size:  # every point of the measure: the sum itself, no rule
            value = weights @ np.array([function(float(s)) for s in sigma])
            return value, np.zeros_like(value)
        nodes, vectors = measure.rule(count)
        values = np.array([function(float(s)) for s in unit * np.sinh(nodes)])
        coefficients = vectors @ (np.abs(vectors[0])[:, None] * values)
        means = measure.means(weights, count)
        value = means @ coefficients
        last = np.abs(coefficients[-2:]).sum(axis=0)
        middle = np.abs(coefficients[count // 2 - 1 : count // 2 + 1]).max(axis=0) + 1e-300
        fall = np.minimum(1.0, last / middle)
        # c_k is known up to c_(2N-k). A fall like e^(-c√k), the slowest that occurs, takes c_(2N) below
        # last fall^1.41, and c_(2N-k) below last fall^(1.41(1 - k/N)).
        powers = 1.41 * (1 - np.arange(count) / count)
        slip = last * (np.abs(means) @ fall ** powers[:, None])
        excess = float(np.max(slip / (_TOLERANCE * np.abs(value) + 1e-300)))
        if excess <= 1 or count >= _MOST:
            return value, slip
        count = _next(count, excess, float(np.max(fall)))


def _union(laws: Sequence[ScaleLaw]) -> tuple[Array, Array]:
    """σ on the points of every law, and the laws' weights there, one row a law."""
    if any(law.step != laws[0].step or law.shift != laws[0].shift for law in laws):
        raise ValueError("the laws must share one grid")
    first = min(law.first for law in laws)
    size = max(law.first + law.weights.size for law in laws) - first
    weights = np.zeros((len(laws), size))
    for row, law in zip(weights, laws, strict=True):
        row[law.first - first : law.first - first + law.weights.size] = law.weights
    # Beyond these ends nothing is left that could reach the last digit, whatever the function's size there.
    kept = np.flatnonzero(weights.max(axis=0) > math.exp(-2 * _DEPTH) * weights.max())
    weights = np.ascontiguousarray(weights[:, kept[0] : kept[-1] + 1])
    grid = first + kept[0] + np.arange(weights.shape[1])
    return np.exp(laws[0].shift + laws[0].step * grid), weights


def _next(count: int, excess: float, fall: float) -> int:
    """More nodes: as many as a fall between that of e^(-ck) and of e^(-c√k) needs to make up for the excess."""
    wanted = count * (1 + 0.33 * math.log(excess) / max(1e-3, -math.log(fall)))
    return min(_MOST, count + count // 2, max(count + 2, math.ceil(wanted)))


class _Measure:
    """Orthonormal polynomials and Gauss rules of a discrete measure (Golub and Welsch 1969), grown as needed."""

    def __init__(self, x: Array, w: Array) -> None:
        self._centre, self._unit = float((x[0] + x[-1]) / 2), float((x[-1] - x[0]) / 2) or 1.0
        self._t = (x - self._centre) / self._unit
        size = min(_MOST, x.size)
        self._basis = np.zeros((size, x.size))
        self._basis[0] = np.sqrt(w / w.sum())
        self._diagonal, self._off = np.zeros(size), np.zeros(size)
        self._known = 0

    def spread(self) -> float:
        """Standard deviation."""
        self._grow(2)
        return float(self._off[0]) * self._unit

    def _grow(self, count: int) -> None:
        basis = self._basis
        for k in range(self._known, count):
            step = self._t * basis[k]
            self._diagonal[k] = step @ basis[k]
            if k + 1 < len(basis):
                for _ in range(2):  # twice is enough to keep the basis orthogonal to rounding
                    step = step - (basis[: k + 1] @ step) @ basis[: k + 1]
                self._off[k] = math.sqrt(float(step @ step))
                basis[k + 1] = step / self._off[k]
        self._known = max(self._known, count)

    def rule(self, count: int) -> tuple[Array, Array]:
        """Nodes, and the matrix whose row k holds p_k at the nodes times the square roots of the rule's weights."""
        self._grow(count)
        off = self._off[: count - 1]
        nodes, vectors = np.linalg.eigh(np.diag(self._diagonal[:count]) + np.diag(off, 1) + np.diag(off, -1))
        return self._centre + self._unit * nodes, vectors * np.sign(vectors[0])

    def means(self, weights: Array, count: int) -> Array:
        """Σ weights p_k for k below count, rows by weights."""
        self._grow(count)
        out: Array = (weights / self._basis[0]) @ self._basis[:count].T
        return out
