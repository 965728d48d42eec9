"""The exact law of a Gaussian score: against quadrature, published numbers, moments, and the limit."""

import math
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from scipy import integrate, special, stats

from derive import distributions, moments
from derive.distributions import GaussianScore
from derive.errors import InputError
from derive.language import scalar, size
from derive.moments import algebra

z, t = scalar("z"), scalar("t")
d_k = size("d_k")


def chi_mean(d: int, f: Any) -> float:
    value, _ = integrate.quad(lambda r: f(r) * stats.chi(d).pdf(r), 0, math.sqrt(d) + 12, epsabs=1e-13, limit=200)
    return float(value)


@pytest.mark.parametrize("d", [2, 3, 8, 64])
@pytest.mark.parametrize("at", [0.1, 1.0, 7.5])
def test_density_is_a_mixture_of_normals(d: int, at: float) -> None:
    exact = float(GaussianScore(d).density(sympy.nsimplify(at)).evalf(20))
    assert exact == pytest.approx(chi_mean(d, lambda r: stats.norm.pdf(at, scale=r) if r else 0.0), rel=1e-9)


@pytest.mark.parametrize("d", [2, 3, 8])
def test_density_at_zero_is_the_limit(d: int) -> None:
    score = GaussianScore(d, 2, 3)
    near = score.density(sympy.Rational(1, 10**9)).evalf(20)
    assert float(score.density(0)) == pytest.approx(float(near), rel=1e-7)
    assert GaussianScore(1).density(0) == sympy.zoo


@pytest.mark.parametrize("d", [2, 4, 8, 64, 128])
@pytest.mark.parametrize("at", [-3.0, 0.0, 0.5, 9.0])
def test_cdf_for_even_sizes_is_the_finite_sum(d: int, at: float) -> None:
    exact = float(GaussianScore(d).cdf(sympy.nsimplify(at)))
    assert exact == pytest.approx(chi_mean(d, lambda r: special.ndtr(at / r) if r else 0.5), abs=1e-11)


def test_cdf_differentiates_to_the_density() -> None:
    score = GaussianScore(6, sympy.Rational(3, 2), 2)
    slope = sympy.diff(1 - score.tail(z), z)
    for at in (sympy.Rational(1, 5), sympy.S(2), sympy.S(11)):
        assert abs(mpmath.mpf(str(slope.xreplace({z: at}).evalf(30) - score.density(at).evalf(30)))) < 1e-25


def test_cdf_of_a_symbol_is_symmetric() -> None:
    whole = GaussianScore(4).cdf(z)
    for at in (sympy.Rational(1, 3), sympy.S(4)):
        assert whole.subs(z, at) + whole.subs(z, -at) == 1
    assert GaussianScore(4).cdf(0) == sympy.Rational(1, 2)


def test_cdf_as_an_integral_for_odd_sizes() -> None:
    written = GaussianScore(3).cdf_integral(sympy.Rational(3, 2))
    value = float(sympy.N(written, 15))
    assert value == pytest.approx(chi_mean(3, lambda r: special.ndtr(1.5 / r) if r else 1.0), abs=1e-11)
    assert float(sympy.N(GaussianScore(6).cdf_integral(2), 15)) == pytest.approx(
        float(GaussianScore(6).cdf(2)), abs=1e-12
    )


def test_characteristic_functions_generate_the_cumulants_of_the_engine() -> None:
    rho = scalar("rho")
    q, k = moments.correlated(("q", "k"), d_k, correlation=rho)
    series = sympy.log(distributions.correlated_characteristic_function(t, 1, rho))
    mean_q, mean_k = sympy.Rational(1, 2), sympy.Rational(-2, 3)
    shifted = moments.vector("q", d_k, law=moments.gaussian(mean_q, 4)) @ moments.vector(
        "k", d_k, law=moments.gaussian(mean_k, 9)
    )
    moved = sympy.log(distributions.shifted_characteristic_function(t, 1, (mean_q, mean_k), (2, 3)))
    for order in range(1, 5):
        slope = sympy.diff(series, t, order).subs(t, 0) / sympy.I**order
        assert algebra.same(sympy.expand(slope * d_k), moments.cumulant(q @ k, order))
        slope = sympy.diff(moved, t, order).subs(t, 0) / sympy.I**order
        assert algebra.same(sympy.expand(slope * d_k), moments.cumulant(shifted, order))


def test_shifted_function_is_the_centred_one_without_means() -> None:
    centred = GaussianScore(d_k, 2, 3).characteristic_function(t)
    assert distributions.shifted_characteristic_function(t, d_k, (sympy.S.Zero, sympy.S.Zero), (2, 3)) == centred
    uncorrelated = distributions.correlated_characteristic_function(t, 4, 0)
    assert sympy.expand(1 / uncorrelated) == sympy.expand((1 + t**2) ** 2)


@pytest.mark.parametrize("order", [2, 4, 6])
def test_density_has_the_moments_of_the_engine(order: int) -> None:
    score = moments.vector("q", d_k, law=moments.gaussian()) @ moments.vector("k", d_k, law=moments.gaussian())
    exact = int(moments.expect(score**order).subs(d_k, 5))
    value = mpmath.quad(
        lambda x: (
            2 * x**order * mpmath.sqrt(x) ** 4 * mpmath.besselk(2, x) / (mpmath.sqrt(mpmath.pi) * 4 * mpmath.gamma(2.5))
        ),
        [0, 2, 10, 80],
    )
    assert abs(value / exact - 1) < 1e-10


@pytest.mark.parametrize("d", [1, 3, 0, -2, sympy.Symbol("d")])
def test_the_finite_sum_needs_an_even_size(d: Any) -> None:
    with pytest.raises(InputError, match="even number"):
        GaussianScore(d).tail(1)


@pytest.mark.parametrize(
    ("d", "kolmogorov", "wasserstein", "variation"),
    # d_k times the distance, from an independent computation: Gauss–Laguerre mixtures on a fine grid.
    [(8, 0.13680, None, None), (16, 0.13768, None, None), (64, 0.13774, 0.3737, 0.3475), (512, 0.13766, None, None)],
)
def test_distances_to_the_normal(d: int, kolmogorov: float, wasserstein: float | None, variation: float | None) -> None:
    assert d * float(distributions.kolmogorov(d)) == pytest.approx(kolmogorov, abs=1e-5)
    if wasserstein is not None and variation is not None:
        assert d * float(distributions.wasserstein(d)) == pytest.approx(wasserstein, abs=1e-4)
        assert d * float(distributions.total_variation(d)) == pytest.approx(variation, abs=1e-4)


@pytest.mark.parametrize("d", [4, 10, 40])
def test_distances_by_brute_force(d: int) -> None:
    x = np.linspace(0, 14, 200_001)
    nu, scaled = (d - 1) / 2, x[1:] * math.sqrt(d)
    log_density = nu * np.log(scaled) + np.log(special.kve(nu, scaled)) - scaled
    log_density -= 0.5 * math.log(math.pi) + nu * math.log(2) + special.gammaln(d / 2)
    gap = np.exp(log_density) * math.sqrt(d) - stats.norm.pdf(x[1:])
    step = x[1] - x[0]
    excess = np.concatenate([[0.0], np.cumsum(gap) * step])
    assert float(distributions.kolmogorov(d)) == pytest.approx(np.abs(excess).max(), abs=2 * step)
    assert float(distributions.total_variation(d)) == pytest.approx(np.abs(gap).sum() * step, abs=2 * step)
    assert float(distributions.wasserstein(d)) == pytest.approx(2 * np.abs(excess).sum() * step, abs=14 * step)


def test_constants_of_the_limits() -> None:
    x = sympy.Symbol("x", real=True)
    normal = sympy.exp(-(x**2) / 2) / sympy.sqrt(2 * sympy.pi)
    he3, he4 = sympy.lambdify(x, (x**3 - 3 * x) * normal), sympy.lambdify(x, (x**4 - 6 * x**2 + 3) * normal)
    turns3, turns4 = [0, math.sqrt(3), 12], [0, math.sqrt(3 - math.sqrt(6)), math.sqrt(3 + math.sqrt(6)), 12]
    whole3 = sum(abs(integrate.quad(he3, a, b)[0]) for a, b in pairwise(turns3))
    whole4 = sum(abs(integrate.quad(he4, a, b)[0]) for a, b in pairwise(turns4))
    assert float(distributions.wasserstein_constant()) == pytest.approx(whole3 / 2, rel=1e-10)
    assert float(distributions.total_variation_constant()) == pytest.approx(whole4 / 4, rel=1e-10)
    peak = max(abs(he3(v)) for v in turns4[1:3])
    assert float(distributions.kolmogorov_constant()) == pytest.approx(peak / 4, rel=1e-10)


@pytest.mark.parametrize("d", [2, 5, 7])
def test_distances_need_an_even_size_of_at_least_four(d: int) -> None:
    for distance in (distributions.kolmogorov, distributions.wasserstein, distributions.total_variation):
        with pytest.raises(InputError, match="even d_k"):
            distance(d)
