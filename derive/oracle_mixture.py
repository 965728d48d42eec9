"""Expectations when σ itself is random: finite d_k, and products of chi variates.

Guarantees: `ScaleLaw` holds the law of log σ as weights on a uniform grid, exact to rounding (the densities are
smooth, so the trapezoidal rule converges geometrically); `mix` integrates any smooth function of σ against it with
few evaluations, and returns an error estimate from the decay of the function's orthogonal coefficients.
Does not: simulate.

Given the query, scores against i.i.d. standard normal keys are exactly i.i.d. N(0, s² ‖q‖²), and ‖q‖² is χ²_{d_k}.
So every expectation at finite d_k is E F(s χ_{d_k}), F the expectation at fixed σ. F is smooth in σ, not in σ² at 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]

_DEPTH = 42.0  # weights below e^-42 of the largest are left out
_NODES = (12, 20, 32, 45)


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

    The standard deviation of log χ_d is about 1/√(2d), and its density is analytic in |Im| < π/4.
    """
    return min(0.11, *(0.42 / math.sqrt(2 * d) for d in dofs))


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


def mix(function: Callable[[float], Array], law: ScaleLaw, tolerance: float = 3e-14) -> tuple[Array, Array]:
    """E function(σ) for a vector-valued smooth function, and an estimate of its absolute error.

    On each panel of σ (one while σ varies by less than a factor 10 or stays below 1/2, else factors of 2.5) the measure
    has its own Gauss rule; its number of nodes is raised until the last two coefficients of the function in the
    measure's orthonormal polynomials say that the rule, exact to twice their degree, has converged.
    """
    sigma, weights = law.sigma(), law.weights
    total, error = np.zeros(0), np.zeros(0)
    panels = [(sigma[part], weights[part]) for part in _panels(sigma)]
    # Heaviest first, so that later panels know the size of the result.
    for nodes, mass in sorted(panels, key=lambda p: -float(p[1].sum())):
        value, slip = _panel(function, nodes, mass, total, tolerance)
        total, error = (total + value, error + slip) if total.size else (value, slip)
    return total, error


def _panels(sigma: Array) -> list[slice]:
    if sigma[-1] <= 0.5 or sigma[-1] <= 10 * sigma[0]:
        return [slice(0, sigma.size)]
    top = float(sigma[-1])
    count = max(1, math.ceil(math.log(top / max(0.5, float(sigma[0]))) / math.log(2.5)))
    floor = max(0.5, float(sigma[0]))
    edges = [floor * (top / floor) ** (k / count) for k in range(count)]
    cuts = [0, *np.searchsorted(sigma, edges if edges[0] > sigma[0] else edges[1:]).tolist(), sigma.size]
    return [slice(a, b) for a, b in itertools.pairwise(cuts) if b > a]


def _panel(
    function: Callable[[float], Array], x: Array, w: Array, so_far: Array, tolerance: float
) -> tuple[Array, Array]:
    mass = float(w.sum())
    value, slip = np.zeros(0), np.zeros(0)
    for count in _NODES:
        nodes, vectors = _gauss(x, w, min(count, x.size))
        values = np.array([function(float(s)) for s in nodes])
        coefficients = vectors @ (np.abs(vectors[0])[:, None] * values)
        value = mass * coefficients[0]
        last = np.abs(coefficients[-2:]).sum(axis=0)
        if count >= x.size:  # every node of the measure: the sum itself, no rule
            return value, np.zeros_like(value)
        # The rule is exact to degree 2N - 1. How fast coefficients fall is read off the second half of them; a fall
        # like e^(-c√k), the slowest that occurs, is still bounded by this.
        middle = np.abs(coefficients[count // 2 - 1 : count // 2 + 1]).max(axis=0) + 1e-300
        slip = mass * last * np.minimum(1.0, last / middle)
        scale = np.abs(value) if not so_far.size else np.abs(so_far) + np.abs(value)
        if np.all(slip <= tolerance * scale):
            break
    return value, slip


def _gauss(x: Array, w: Array, count: int) -> tuple[Array, Array]:
    """Gauss rule of a discrete measure, by Lanczos (Golub and Welsch 1969): nodes, and the matrix whose row k holds
    the orthonormal polynomial of degree k at the nodes times the square roots of the weights."""
    centre, unit = float((x[0] + x[-1]) / 2), float((x[-1] - x[0]) / 2) or 1.0
    t = (x - centre) / unit
    basis = np.zeros((count, x.size))
    basis[0] = np.sqrt(w / w.sum())
    diagonal, off = np.zeros(count), np.zeros(count - 1)
    for k in range(count):
        step = t * basis[k]
        diagonal[k] = step @ basis[k]
        if k + 1 < count:
            for _ in range(2):  # twice is enough to keep the basis orthogonal to rounding
                step = step - basis[: k + 1].T @ (basis[: k + 1] @ step)
            off[k] = math.sqrt(float(step @ step))
            basis[k + 1] = step / off[k]
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return centre + unit * nodes, vectors * np.sign(vectors[0])
