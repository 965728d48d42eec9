"""The functions of one variable that every exact expectation over n i.i.d. Gaussian logits is an integral of.

Guarantees: at every n ≥ 1 (a float, up to 1e120 and more) and every standard deviation σ > 0 the integrals below are
evaluated to about 1e-13 relative. Every integrand is a sum of positive terms, so no observable is a difference of
nearly equal numbers, however small it is. The cost doesn't depend on n.
Does not: simulate; treat logits that are not Gaussian or not independent.

The identity (Gamma integral, t = e^u): Z^(-K) = ∫ t^(K-1) e^(-tZ) dt / Γ(K). With y = e^(u + x), x ~ N(0, σ²), and

    A_k(u) = E[y^k e^(-y)],   A_k,r(u) = E[w^r y^k e^(-y)],  w = log y,

independence turns every symmetric expectation of degree K in α into ∫ (products of A) A_0^(n-m) du / Γ(K). As
functions of u the integrands are analytic in the strip |Im u| < π/2, and at Im u = b they are at most cos(b)^(-K)
times what they are on the real line. The trapezoidal rule of step h therefore has a relative error of at most
about 2 e^(-2πb/h) / cos(b)^K for every b < π/2: 2e-16 at h = 0.2, K = 4 (Trefethen and Weideman 2014, theorem 5.1).

The inner expectations are sums over one grid: in w for σ ≥ 1, where A_k(u) = ∫ e^(kw - e^w) φ_σ(w - u) dw is a
convolution, and in the standard normal variate itself for σ < 1. A_0 and 1 - A_0 are both computed, each as a sum
of positive terms (by parts: 1 - A_0 = ∫ e^(w - e^w) Q((w - u)/σ) dw), so A_0^n keeps its accuracy at every n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri_exp

Array = NDArray[np.float64]

STEP = 0.2  # of the fine grid; see the bound above
COARSE_STEP = 0.25  # of the second grid, whose difference from the first is part of the error estimate
_TAIL = 38.0  # everything left out has relative weight below e^-38 = 3e-17
_TOP = 4.25  # e^(4w - e^w) < e^-53 beyond
DIGAMMA_1 = -0.5772156649015329


@dataclass(frozen=True)
class Moments:
    """Of z under the weights y e^(-y) and y² e^(-y), functions of u.

    mean1: mean under y e^(-y). var1, var2: variances. gap: mean under y² e^(-y) less that under y e^(-y). third2,
    fourth2: central moments under y² e^(-y), or None when moments to order 2 were asked for.
    """

    mean1: Array
    var1: Array
    var2: Array
    gap: Array
    third2: Array | None = None
    fourth2: Array | None = None


@dataclass(frozen=True)
class Table:
    """The functions A of u for one (n, σ), on a uniform grid of step `step`.

    u: the grid. log_a0: log A_0(u). a1, a2, a3, a4: n A_k(u), of order one at every n.
    entropy: n E[(ψ(1) - w) y e^(-y)].
    moments: central moments of z = x/σ under the weights y^k e^(-y), or None when they were not asked for.
    """

    n: float
    sigma: float
    step: float
    u: Array
    log_a0: Array
    a1: Array
    a2: Array
    a3: Array
    a4: Array
    entropy: Array
    moments: Moments | None = None
    _powers: dict[int, Array] = field(default_factory=dict, repr=False, compare=False)

    def integral(self, body: Array, others: int) -> float:
        """∫ body(u) A_0(u)^(n - others) du. With n < others the prefactor of the caller is 0, and so is this."""
        if self.n < others:
            return 0.0
        if others not in self._powers:
            self._powers[others] = np.exp((self.n - others) * self.log_a0)
        return float(np.dot(body, self._powers[others])) * self.step


def table(n: float, sigma: float, step: float = STEP, *, moments: int = 0) -> Table:
    """The functions A for n logits of standard deviation sigma ≥ 0, on grids of about the given step.

    moments: 0, or the highest central moment of z wanted, 2 or 4.
    """
    return _narrow(n, sigma, step, moments) if sigma < 1.0 else _wide(n, sigma, step, moments)


def _range(n: float, sigma: float) -> tuple[float, float]:
    """Ends of the u grid: u = log Gamma_k - log Z, and both tails left out weigh less than e^-_TAIL, relatively.

    Below: P(Gamma_k < e^u Z) ≤ e^(ku) E Z^k, E Z^k ≤ n^k e^(k²v/2), beside observables of at least n^(1-k), k ≤ 4; or
    log Z ≤ log n + max x, and max x ≤ σ z outside probability n Q(z). Above: log Z ≥ max x.
    """
    log_n, v = math.log(n), sigma * sigma
    by_moments = max(((2 * k - 1) * log_n + _TAIL) / k + k * v / 2 for k in (1, 2, 3, 4))
    by_maximum = log_n + sigma * math.sqrt(2 * (3 * log_n + _TAIL)) + _TAIL
    low = sigma * float(-ndtri_exp(-(3 * log_n + _TAIL) / n))
    return -min(by_moments, by_maximum), _TOP + max(low, 0.0)


def _narrow(n: float, sigma: float, step: float, moments: int) -> Table:
    """σ < 1: the inner expectation over the normal variate g, a sum over a grid of step 1.25 step."""
    lower, upper = _range(n, sigma)
    u = _grid(lower, upper, step)
    # The factors y^k, k ≤ 4, tilt g upwards by at most kσ; the tails left out weigh less than e^-40.
    g = _grid(-9.0, 9.0 + 4 * sigma, 1.25 * step)
    weight = np.exp(-0.5 * g * g) * (1.25 * step / math.sqrt(2 * math.pi))
    w = u[:, None] + sigma * g
    y = np.exp(u)[:, None] * np.exp(sigma * g)
    decay = np.exp(-y)
    b0 = -np.expm1(-y) @ weight
    a0 = decay @ weight
    m1 = (y * decay) * weight
    m2 = m1 * y
    m3 = m2 * y
    a1, a2, a3, a4 = (m.sum(axis=1) for m in (m1, m2, m3, m3 * y))
    entropy = (m1 * (DIGAMMA_1 - w)).sum(axis=1)
    about = None
    if moments:
        powers = _powers(g - 1.5 * sigma, moments)
        about = _central(m1 @ powers[:, :3], m2 @ powers, 1.0, 1.5 * sigma)
    log_a0 = _log_a0(a0, b0)
    a1, a2, a3, a4, entropy = _counted(n, log_a0, a1, a2, a3, a4, entropy)
    return Table(n, sigma, step, u, log_a0, a1, a2, a3, a4, entropy, about)


def _wide(n: float, sigma: float, step: float, moments: int) -> Table:
    """σ ≥ 1: convolutions on the w grid; the u grid is coarser by a whole factor where σ smooths the integrand."""
    lower, upper = _range(n, sigma)
    # A_0^n falls from 1 to 0 over a width of σ / max(1, √(2 log n)): more than 1 once σ passes √(2 log n).
    every = max(1, int(sigma / (1.0 + 1.2 * math.sqrt(2 * math.log(n)))))
    kernel = _kernel(n, step)
    w, k1 = kernel.w, kernel.k1
    u = _grid(lower, upper, step * every)
    pairs = _Pairs(w, u, sigma, step, every)
    near = moments > 0 and _near(n, sigma, moments)
    found = pairs.density() @ (kernel.columns[:, : 9 + moments] if near else kernel.columns[:, :5])
    a1, a2, a3, a4, w1 = found[:, :5].T
    log_a0 = _log_a0(pairs.lower_tail(k1), pairs.upper_tail(k1))
    about = None
    if near:
        raw1 = np.column_stack((a1, w1, found[:, 5]))
        about = _central(raw1, found[:, 6 : 7 + moments], sigma, -u / sigma)
    elif moments:
        about = _central(*pairs.powers(kernel, 1.5 * sigma, moments), 1.0, 1.5 * sigma)
    entropy = DIGAMMA_1 * a1 - w1
    a1, a2, a3, a4, entropy = _counted(n, log_a0, a1, a2, a3, a4, entropy)
    return Table(n, sigma, step * every, u, log_a0, a1, a2, a3, a4, entropy, about)


@dataclass(frozen=True)
class _Kernel:
    """What every table of one n shares: the w grid, w y^k e^(-y) on it, and in columns k = 1 … 4, w·1, then the rest
    of w^r y e^(-y), r ≤ 2, and w^r y² e^(-y), r ≤ 4.
    """

    w: Array
    k1: Array
    k2: Array
    columns: Array


@lru_cache(maxsize=64)
def _kernel(n: float, step: float) -> _Kernel:
    w = _grid(-(math.log(n) + _TAIL), _TOP, step)
    y = np.exp(w)
    k1 = np.exp(w - y) * step
    k2 = np.exp(2 * w - y) * step
    squares = k2[:, None] * _powers(w, 4)
    columns = np.column_stack((k1, k2, k2 * y, k2 * y * y, w * k1, w * w * k1, squares))
    return _Kernel(w, k1, k2, columns)


def _near(n: float, sigma: float, order: int) -> bool:
    """Whether moments of w about 0 lose at most two digits; otherwise they are taken of z about 3/2 σ.

    Below half the freezing point the weights y^k e^(-y) sit at z = kσ, where w is near 3/2 σ² - log n; above it, at w
    of order one.
    """
    far = abs(math.log(n) - 1.5 * sigma * sigma) / sigma if sigma * sigma < 0.5 * math.log(n) else 0.0
    return far**order < 100.0


def _powers(x: Array, order: int) -> Array:
    """x^r for r = 0 … order, columns by r."""
    return np.multiply.accumulate(np.column_stack((np.ones_like(x), *([x] * order))), axis=1)


def _central(raw1: Array, raw2: Array, unit: float, origin: Array | float) -> Moments:
    """Moments about the means from raw ones, Σ weight x^r for r = 0 … 2 and r = 0 … 2 or 4; z = x/unit + origin."""
    mean1, square1 = _ratio(raw1[:, 1], raw1[:, 0]), _ratio(raw1[:, 2], raw1[:, 0])
    mean2, *higher = (_ratio(raw2[:, r], raw2[:, 0]) for r in range(1, raw2.shape[1]))
    var1, var2 = np.maximum(square1 - mean1**2, 0.0), np.maximum(higher[0] - mean2**2, 0.0)
    gap = (mean2 - mean1) / unit
    if len(higher) < 3:
        return Moments(mean1 / unit + origin, var1 / unit**2, var2 / unit**2, gap)
    r2, r3, r4 = higher
    third = r3 - 3 * mean2 * r2 + 2 * mean2**3
    fourth = np.maximum(r4 - 4 * mean2 * r3 + 6 * mean2**2 * r2 - 3 * mean2**4, 0.0)
    mean = mean1 / unit + origin
    return Moments(mean, var1 / unit**2, var2 / unit**2, gap, third / unit**3, fourth / unit**4)


class _Pairs:
    """φ_σ(w - u), Q((w - u)/σ) and Φ((w - u)/σ) for every pair, applied to functions of w; answers go by u.

    The grids are aligned, so the differences take few distinct values: each is evaluated once, and where the u grid
    is as fine as that of w, applying is a correlation.
    """

    def __init__(self, w: Array, u: Array, sigma: float, step: float, every: int) -> None:
        self._sigma, self._width, self._every = sigma, w.size, every
        self._apart = every >= w.size
        if self._apart:
            self._grid = (w - u[:, None]) / sigma
        else:
            offset = round(w[0] / step) - round(u[-1] / step)
            self._grid = np.arange(offset, offset + w.size + (u.size - 1) * every) * (step / sigma)

    def density(self) -> Array:
        """The matrix of φ_σ(w - u), rows by u."""
        return np.ascontiguousarray(self._rows(_density(self._grid, self._sigma)))

    def upper_tail(self, body: Array) -> Array:
        return self._apply(ndtr(-self._grid), body)

    def lower_tail(self, body: Array) -> Array:
        return self._apply(ndtr(self._grid), body)

    def powers(self, kernel: _Kernel, origin: float, order: int) -> tuple[Array, Array]:
        """Σ φ_σ(w - u) z^r f(w), z = (w - u)/σ - origin: f = y e^(-y) to r = 2, f = y² e^(-y) to r = order."""
        weighted = _density(self._grid, self._sigma)
        first, second = [], []
        for r in range(order + 1):
            second.append(self._apply(weighted, kernel.k2))
            if r < 3:
                first.append(self._apply(weighted, kernel.k1))
            weighted = weighted * (self._grid - origin)
        return np.column_stack(first), np.column_stack(second)

    def _rows(self, values: Array) -> Array:
        if self._apart:
            return values
        return np.lib.stride_tricks.sliding_window_view(values, self._width)[:: self._every][::-1]

    def _apply(self, values: Array, body: Array) -> Array:
        if self._apart or self._every > 1:
            out: Array = self._rows(values) @ body
            return out
        return np.correlate(values, body, "valid")[::-1]


def _density(z: Array, sigma: float) -> Array:
    out: Array = np.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * sigma)
    return out


def _counted(n: float, log_a0: Array, *functions: Array) -> tuple[Array, ...]:
    """n A_k, and 0 where A_0^(n-4) underflows: such places carry no weight, and products there could overflow."""
    factor = np.where((n - 4) * log_a0 < -740.0, 0.0, n)
    return tuple(factor * a for a in functions)


def _grid(lower: float, upper: float, step: float) -> Array:
    """Whole multiples of step that cover [lower, upper]: no rounding accumulates, and two grids stay aligned."""
    return step * np.arange(math.floor(lower / step), math.ceil(upper / step) + 1, dtype=np.float64)


def _ratio(top: Array, bottom: Array) -> Array:
    """top / bottom, and 0 where the weights have vanished: such places carry no weight in any integral."""
    out: Array = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    return out


def _log_a0(a0: Array, b0: Array) -> Array:
    out: Array = np.where(b0 < 0.5, np.log1p(-np.minimum(b0, 0.5)), np.log(np.maximum(a0, 1e-300)))
    return out
