"""Exact E max α, and 1 - E max α without cancellation, for n i.i.d. Gaussian logits.

Guarantees: about 1e-13 relative at every n ≥ 1 and σ ≥ 0; the two values are computed apart, each from positive
terms, and their sum must be 1: that is the check.
Does not: simulate.

With m the largest logit and t scaled by e^m, Z = e^m (1 + Σ e^(x_j - m)) gives

    E max α = n ∫ φ_σ(m) ∫ e^(-t) I(t, m)^(n-1) dt dm,           I(t, m) = E[e^(-t e^(x - m)); x < m],
    1 - E max α = n (n-1) ∫ φ_σ(m) ∫ e^(-t) I_1 I^(n-2) dt dm,   I_1 = E[e^(x - m) e^(-t e^(x - m)); x < m].

In u = log t the integrand is analytic in the strip |Im u| < π/2 with the bound of `derive.oracle_gaussian`. In m it
is entire, and varies on the scale σ / √(2 log n).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri_exp

Array = NDArray[np.float64]

_TAIL = 40.0
_NODES = 16


def maximum(n: float, sigma: float, refine: float = 1.0) -> tuple[float, float]:
    """(E max α, 1 - E max α) for n logits of deviation sigma. refine < 1 coarsens every grid by that factor."""
    if n == 1 or sigma == 0:
        return 1.0 / n, 1.0 - 1.0 / n
    log_n = math.log(n)
    z = _largest(n, log_n, refine)
    u = np.arange(-(log_n + _TAIL), 4.25, 0.2 / refine)
    y, weight, end = _below(sigma, float(z[-1]), log_n, refine)
    t = np.exp(u)
    density = np.exp(-0.5 * (z[:, None] - y / sigma) ** 2) * (weight / (math.sqrt(2 * math.pi) * sigma))
    share = t[:, None] * np.exp(-y)
    # I = Φ(z) - E[1 - e^(-t e^(x-m)); x < m], and 1 - I as a sum of positive terms for I near 1.
    missing = density @ -np.expm1(-share).T
    complement = ndtr(-z)[:, None] + missing
    inside = density @ np.exp(-share).T + ndtr(z - end / sigma)[:, None]  # e^(-t e^-y) is 1 beyond the last node
    log_i = np.where(complement < 0.5, np.log1p(-np.minimum(complement, 0.5)), np.log(np.maximum(inside, 1e-300)))
    first = density @ (np.exp(-y) * np.exp(-share)).T
    weight_t = t * np.exp(-t) * (u[1] - u[0])
    weight_z = np.exp(-0.5 * z * z) * ((z[1] - z[0]) / math.sqrt(2 * math.pi))
    largest = n * float(weight_z @ (np.exp((n - 1) * log_i) @ weight_t))
    rest = n * (n - 1) * float(weight_z @ ((first * np.exp((n - 2) * log_i)) @ weight_t))
    return largest, rest


def _largest(n: float, log_n: float, refine: float) -> Array:
    """Nodes for the largest of n standard normals: outside them lies probability below e^-40 / n."""
    lower = float(ndtri_exp(-(log_n + _TAIL) / n))
    upper = math.sqrt(2 * (2 * log_n + _TAIL))
    step = 0.26 / max(1.0, math.sqrt(2 * log_n)) / refine
    return lower + step * np.arange(math.ceil((upper - lower) / step) + 1, dtype=np.float64)


def _below(sigma: float, top: float, log_n: float, refine: float) -> tuple[Array, Array, float]:
    """Nodes and weights for y = m - x > 0, and their end: panels of Gauss-Legendre no wider than 1.2 σ or 1.6."""
    end = min(sigma * (top + 9.5), log_n + _TAIL + 5.0)
    width = min(1.2 * sigma, 1.6)
    edges = np.linspace(0.0, end, math.ceil(end / width) + 1)
    x, w = np.polynomial.legendre.leggauss(max(4, round(_NODES * refine)))
    half = np.diff(edges) / 2
    nodes = (edges[:-1] + half)[:, None] + half[:, None] * x
    return nodes.ravel(), (half[:, None] * w).ravel(), end
