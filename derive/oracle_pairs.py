"""Two rows of attention with correlated scores: E Σ_k α_k β_k, exactly.

Guarantees: about 1e-12 relative at every n ≥ 1, σ ≥ 0 and correlation 0 ≤ ρ ≤ 1; by two-dimensional quadrature over the
two Gamma integrals of `derive.oracle_gaussian`, with E Σ_k α_k Σ_l β_l = 1 as its check.
Does not: simulate; treat scores that are correlated within a row.

Scores x_k = σ(√ρ g_k + √(1-ρ) h_k), x'_k with the same g_k and its own h'_k, all i.i.d. standard normal. With
y = e^(u + x), y' = e^(u' + x') and A(u, u') = E[e^(-y-y')], B(u, u') = E[y y' e^(-y-y')]:

    E Σ_k α_k β_k = n ∫∫ B A^(n-1) du du',   and with C = E[y e^(-y-y')], C' likewise, E Σ_{k≠l} α_k β_l is
    n(n-1) ∫∫ C C' A^(n-2) du du'.

Given g the two factors are independent, so A, B, C are products of two matrices over a grid of g.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

Array = NDArray[np.float64]

_TAIL = 40.0


def overlap(n: float, sigma: float, correlation: float, step: float = 0.22) -> tuple[float, float]:
    """(E Σ_k α_k β_k, its estimated error), for 0 ≤ correlation ≤ 1."""
    value, rest = _overlap(n, sigma, correlation, step)
    coarse, _ = _overlap(n, sigma, correlation, 1.25 * step)
    return value, abs(value) * (1e-14 + abs(value + rest - 1)) + abs(value - coarse)


def _overlap(n: float, sigma: float, correlation: float, step: float) -> tuple[float, float]:
    log_n = math.log(n)
    low = sigma * max(0.0, float(-ndtri_exp(-(3 * log_n + _TAIL) / n)))
    high = sigma * math.sqrt(2 * (2 * log_n + _TAIL))
    first, last = math.floor(-(log_n + high + _TAIL) / step), math.ceil((4.25 + low) / step)
    u: Array = step * np.arange(first, last + 1, dtype=np.float64)
    shared, own = sigma * math.sqrt(correlation), sigma * math.sqrt(1 - correlation)
    g, weight = _normal(shared, log_n, step)
    a, b, c = _given(u, g, shared, own, log_n, step)
    # 1 - A as a sum of positive terms: 1 - aa' = b + b' - bb' with b = 1 - a.
    ones = np.ones_like(b)
    missing = (b * weight) @ ones.T
    missing = missing + ((ones - b) * weight) @ b.T
    plain = (a * weight) @ a.T
    log_a = np.where(missing < 0.5, np.log1p(-np.minimum(missing, 0.5)), np.log(np.maximum(plain, 1e-300)))
    both = (c * weight) @ c.T
    one = (c * weight) @ a.T
    area = step * step
    value = n * float(np.sum(both * np.exp((n - 1) * log_a))) * area
    rest = n * (n - 1) * float(np.sum(one * one.T * np.exp((n - 2) * log_a))) * area if n >= 2 else 0.0
    return value, rest


def _normal(spread: float, log_n: float, step: float) -> tuple[Array, Array]:
    """Nodes and weights of a standard normal variate; finer where `spread` makes the integrand vary faster."""
    h = 0.45 / max(1.0, spread, math.sqrt(2 * log_n) / 3) * (step / 0.22)
    end = math.sqrt(2 * (3 * log_n + _TAIL))
    g: Array = h * np.arange(-math.ceil(end / h), math.ceil(end / h) + 1, dtype=np.float64)
    return g, np.exp(-0.5 * g * g) * (h / math.sqrt(2 * math.pi))


def _given(u: Array, g: Array, shared: float, own: float, log_n: float, step: float) -> tuple[Array, Array, Array]:
    """E[e^-y], E[1 - e^-y] and E[y e^-y] given g, rows by u: means over the row's own part of the scores."""
    h, weight = _normal(own, log_n, step)
    a, b, c = np.empty((u.size, g.size)), np.empty((u.size, g.size)), np.empty((u.size, g.size))
    for k, centre in enumerate(shared * g):
        y = np.exp(np.minimum(u[:, None] + centre + own * h, 700.0))
        # 1 - e^-y keeps its relative accuracy for small y; e^-y needs it only where y is not large.
        missing = -np.expm1(-y)
        decay = 1.0 - missing
        a[:, k], b[:, k] = decay @ weight, missing @ weight
        c[:, k] = np.where(y < 700, y * decay, 0.0) @ weight
    return a, b, c
