"""The exact law of a score q·k for centred Gaussian components: density, CDF, characteristic function, and how far
it is from a normal.

Guarantees: formulas are exact SymPy expressions at symbolic d_k (the finite sum for the CDF needs an even number);
`kolmogorov`, `wasserstein` and `total_variation` evaluate the exact law in mpmath arithmetic, never by simulation.
Does not: cover means other than 0, except in the characteristic function, or components that are not Gaussian.

With independent components q_c ~ N(0, σ_q²), k_c ~ N(0, σ_k²) and s = σ_q σ_k the score is symmetric variance-gamma
(Gaunt, arXiv:2307.01921); the finite sum for even d_k counts a race of two Poisson processes: a score is s times the
difference of two Γ(d_k/2, 1) variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mpmath
import sympy

from derive.errors import InputError

# Leading constants of the distance to the normal, all from the Edgeworth term He₃ φ κ₄/24 with κ₄ = 6/d_k:
# max |x³ − 3x| φ(x)/4 at x² = 3 − √6; ∫|He₃| φ/4 = (4 φ(√3) + φ(0))/2; ∫|He₄| φ/8.
_PHI0 = 1 / sympy.sqrt(2 * sympy.pi)


def _phi_of_square(square: Any) -> Any:
    return _PHI0 * sympy.exp(-sympy.sympify(square, strict=True) / 2)


def kolmogorov_constant() -> Any:
    """lim d_k · sup |F − Φ| = √(3−√6) √6 φ(√(3−√6))/4 = 0.13765."""
    inner = 3 - sympy.sqrt(6)
    return sympy.sqrt(inner) * sympy.sqrt(6) * _phi_of_square(inner) / 4


def wasserstein_constant() -> Any:
    """lim d_k · ∫ |F − Φ| = (4 φ(√3) + φ(0))/2 = 0.37750."""
    return (4 * _phi_of_square(3) + _PHI0) / 2


def total_variation_constant() -> Any:
    """lim d_k · ½ ∫ |f − φ| = (|He₃(a)| φ(a) + |He₃(b)| φ(b))/2 at the roots a², b² = 3 ∓ √6 of He₄: 0.35008."""
    small, large = 3 - sympy.sqrt(6), 3 + sympy.sqrt(6)
    # He₃(x) = x (x² − 3), and ∫ He₄ φ = −He₃ φ; on (0, a) and (b, ∞) He₄ > 0, on (a, b) it is < 0.
    peaks = sympy.sqrt(6) * (sympy.sqrt(small) * _phi_of_square(small) + sympy.sqrt(large) * _phi_of_square(large))
    return peaks / 2


@dataclass(frozen=True)
class GaussianScore:
    """q·k with independent centred Gaussian components. d_k: a size, symbolic or a number; sigma_q, sigma_k > 0."""

    d_k: Any
    sigma_q: Any = 1
    sigma_k: Any = 1

    @property
    def scale(self) -> Any:
        """σ_q σ_k, the standard deviation of one product q_c k_c."""
        return sympy.sympify(self.sigma_q, strict=True) * sympy.sympify(self.sigma_k, strict=True)

    def density(self, z: Any) -> Any:
        """|z/s|^ν K_ν(|z|/s) / (s √π 2^ν Γ(d_k/2)) with ν = (d_k − 1)/2; infinite at 0 for d_k = 1."""
        nu = (sympy.sympify(self.d_k, strict=True) - 1) / 2
        if sympy.sympify(z, strict=True) == 0:
            # K_ν(x) ~ Γ(ν) 2^(ν−1) x^(−ν) as x → 0.
            return sympy.gamma(nu) / (2 * self.scale * sympy.sqrt(sympy.pi) * sympy.gamma(nu + sympy.Rational(1, 2)))
        x = sympy.Abs(sympy.sympify(z, strict=True)) / self.scale
        below = self.scale * sympy.sqrt(sympy.pi) * 2**nu * sympy.gamma(nu + sympy.Rational(1, 2))
        return x**nu * sympy.besselk(nu, x) / below

    def characteristic_function(self, t: Any) -> Any:
        """E e^(its) = (1 + σ_q² σ_k² t²)^(−d_k/2): given q the score is N(0, σ_k² ‖q‖²), and ‖q‖²/σ_q² is χ²."""
        d_k = sympy.sympify(self.d_k, strict=True)
        return (1 + self.scale**2 * sympy.sympify(t, strict=True) ** 2) ** (-d_k / 2)

    def tail(self, z: Any) -> Any:
        """P(score > z) for z ≥ 0 and a positive even number d_k = 2m, as a finite sum:

        Σ_{k<m} C(m−1+k, k) 2^(−(m+k)) Q(m−k, z/s), with Q the regularised upper incomplete gamma function, for whole
        m−k a polynomial times e^(−z/s).
        """
        m = self._half("tail")
        x = sympy.sympify(z, strict=True) / self.scale
        weights = [sympy.binomial(m - 1 + k, k) / sympy.Integer(2) ** (m + k) for k in range(m)]
        return sum((w * _upper_gamma(m - k, x) for k, w in enumerate(weights)), sympy.S.Zero)

    def cdf(self, z: Any) -> Any:
        """P(score ≤ z) for a positive even number d_k, by `tail` and symmetry; z a number or a symbol."""
        z = sympy.sympify(z, strict=True)
        left, right = self.tail(-z), 1 - self.tail(z)
        if z.is_number:
            return right if z >= 0 else left
        return sympy.Piecewise((right, z >= 0), (left, True))

    def cdf_integral(self, z: Any) -> Any:
        """P(score ≤ z) for every d_k ≥ 1: E Φ(z/(s R)) over R ~ χ with d_k degrees of freedom, as a SymPy Integral."""
        r = sympy.Dummy("r", positive=True)
        d_k = sympy.sympify(self.d_k, strict=True)
        chi = 2 ** (1 - d_k / 2) / sympy.gamma(d_k / 2) * r ** (d_k - 1) * sympy.exp(-(r**2) / 2)
        inside = (1 + sympy.erf(sympy.sympify(z, strict=True) / (self.scale * r * sympy.sqrt(2)))) / 2
        return sympy.Integral(inside * chi, (r, 0, sympy.oo))

    def _half(self, what: str) -> int:
        d_k = sympy.sympify(self.d_k, strict=True)
        if not (d_k.is_Integer and d_k > 0 and d_k % 2 == 0):
            raise InputError(f"{what}: expected an even number d_k ≥ 2, got {d_k}; `cdf_integral` takes any d_k")
        return int(d_k) // 2


def _upper_gamma(order: int, x: Any) -> Any:
    """Q(order, x) = e^(−x) Σ_{r<order} x^r/r! for a whole order ≥ 1."""
    return sympy.exp(-x) * sum((x**r / sympy.factorial(r) for r in range(order)), sympy.S.Zero)


def correlated_characteristic_function(t: Any, d_k: Any, correlation: Any, deviation: Any = 1) -> Any:
    """E e^(it q·k) with q_c, k_c jointly Gaussian, centred, of correlation ρ; deviation is σ_q σ_k.

    ((1 − i(1+ρ)st)(1 + i(1−ρ)st))^(−d_k/2): the score is s((1+ρ)/2 χ² − (1−ρ)/2 χ'²) with independent χ².
    """
    rho, u = sympy.sympify(correlation, strict=True), sympy.sympify(deviation, strict=True) * t
    inside = (1 - sympy.I * (1 + rho) * u) * (1 + sympy.I * (1 - rho) * u)
    return inside ** (-sympy.sympify(d_k, strict=True) / 2)


def shifted_characteristic_function(t: Any, d_k: Any, means: tuple[Any, Any], deviations: tuple[Any, Any]) -> Any:
    """E e^(it q·k) for independent Gaussian components with means μ_q, μ_k and deviations σ_q, σ_k.

    (1 + σ_q²σ_k²t²)^(−d_k/2) exp(d_k (i t μ_qμ_k − t²(μ_q²σ_k² + μ_k²σ_q²)/2) / (1 + σ_q²σ_k²t²)).
    """
    (a, b), (s, u) = means, deviations
    below = 1 + s**2 * u**2 * t**2
    above = sympy.I * t * a * b - t**2 * (a**2 * u**2 + b**2 * s**2) / 2
    return below ** (-sympy.sympify(d_k, strict=True) / 2) * sympy.exp(d_k * above / below)


@lru_cache(maxsize=64)
def _tail_weights(m: int) -> tuple[Any, ...]:
    """P(score > z) = e^(−x) Σ_r c_r x^r for d_k = 2m: the coefficients, exact up to the working precision."""
    shares = [mpmath.binomial(m - 1 + k, k) / mpmath.mpf(2) ** (m + k) for k in range(m)]
    # c_r r! is the sum of the shares of all orders m − k above r.
    return tuple(mpmath.fsum(shares[: m - r]) / mpmath.factorial(r) for r in range(m))


def _scaled_tail(d_k: int, x: Any) -> Any:
    """P(q·k/√d_k > x) for x ≥ 0, standard components, even d_k."""
    z = x * mpmath.sqrt(d_k)
    return mpmath.exp(-z) * mpmath.polyval(list(reversed(_tail_weights(d_k // 2))), z)


def _excess(d_k: int, x: Any) -> Any:
    """F(x) − Φ(x) for x ≥ 0 and the score divided by √d_k."""
    return mpmath.ncdf(-x) - _scaled_tail(d_k, x)


def _scaled_density(d_k: int, x: Any) -> Any:
    """Density of q·k/√d_k at x > 0."""
    nu, z = mpmath.mpf(d_k - 1) / 2, x * mpmath.sqrt(d_k)
    below = mpmath.sqrt(mpmath.pi) * mpmath.mpf(2) ** nu * mpmath.gamma(nu + mpmath.mpf(1) / 2)
    return mpmath.sqrt(d_k) * z**nu * mpmath.besselk(nu, z) / below


def _checked(d_k: int) -> int:
    if d_k < 4 or d_k % 2:
        raise InputError(f"distance to the normal: expected an even d_k ≥ 4, got {d_k}")
    return d_k


def _crossing(d_k: int, low: float, high: float) -> Any:
    """The x in (low, high) where the two densities cross. F − Φ is largest or smallest there."""

    def gap(x: Any) -> Any:
        return _scaled_density(d_k, x) - mpmath.npdf(x)

    return mpmath.findroot(gap, (low, high), solver="anderson", tol=1e-24)


@lru_cache(maxsize=64)
def kolmogorov(d_k: int) -> Any:
    """sup_x |P(q·k/√d_k ≤ x) − Φ(x)| for standard Gaussian components, d_k even and at least 4, to about 1e-12.

    The extrema of F − Φ are the crossings of the densities, near the roots x² = 3 ∓ √6 of He₄.
    """
    with mpmath.workdps(30):
        inner, outer = _crossing(_checked(d_k), 0.45, 1.0), _crossing(d_k, 1.8, 3.2)
        return max(abs(_excess(d_k, inner)), abs(_excess(d_k, outer)))


@lru_cache(maxsize=64)
def total_variation(d_k: int) -> Any:
    """½ ∫ |f − φ|: between crossings of the densities the integral is a difference of F − Φ. d_k as in `kolmogorov`."""
    with mpmath.workdps(30):
        inner, outer = _crossing(_checked(d_k), 0.45, 1.0), _crossing(d_k, 1.8, 3.2)
        a, b = _excess(d_k, inner), _excess(d_k, outer)
        # Half of 2 (|a − 0| + |b − a| + |0 − b|), both sides of 0 alike.
        return abs(a) + abs(b - a) + abs(b)


@lru_cache(maxsize=64)
def wasserstein(d_k: int) -> Any:
    """∫ |F − Φ| dx, split where F − Φ changes its sign (near √3). d_k as in `kolmogorov`."""
    with mpmath.workdps(30):
        turn = mpmath.findroot(lambda x: _excess(_checked(d_k), x), (1.2, 2.6), solver="anderson", tol=1e-24)
        pieces = [mpmath.quad(lambda x: _excess(d_k, x), part) for part in ([0, turn], [turn, 4, 8, 20])]
        return 2 * mpmath.fsum(abs(p) for p in pieces)
