"""Variance claims about the shape of one score's law, and about queries and keys that depend on each other.

Third and fourth cumulants, skewness and excess kurtosis for components of any kind; correlated Gaussian q and k, and
Gaussian vectors of any covariance.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.assumptions import AtLeast, RandomEntries
from derive.catalogue import Claim
from derive.families._moments import (
    COV,
    COV_K,
    COV_Q,
    MU_K,
    MU_Q,
    RHO,
    SCORE,
    SIGMA_K,
    SIGMA_Q,
    UNIT,
    claim_of,
    d_k,
    gaussian_field,
    k,
    products,
    q,
)
from derive.language import index, total
from derive.moments.laws import gaussian, shaped, uniform
from derive.moments.model import GaussianPair
from derive.moments.nodes import Cumulant, ExcessKurtosis, Expect, Skewness, Variance
from derive.source import HERE


def _multinomial(*parts: int) -> Any:
    return sympy.factorial(sum(parts)) / sympy.Mul(*(sympy.factorial(p) for p in parts))


def _central_moment(order: int, a4: Any, b4: Any, a3: Any, b3: Any) -> Any:
    """E (q_c k_c − μ_q μ_k)^order = E (μ_q b + μ_k a + a b)^order for the centred a, b: the multinomial theorem."""
    a = [sympy.S.One, sympy.S.Zero, SIGMA_Q**2, a3, a4]
    b = [sympy.S.One, sympy.S.Zero, SIGMA_K**2, b3, b4]
    terms = [
        _multinomial(s, t, order - s - t) * MU_Q**s * MU_K**t * b[order - t] * a[order - s]
        for s in range(order + 1)
        for t in range(order + 1 - s)
    ]
    return sympy.Add(*terms)


def shape_claims() -> list[Claim]:
    gq, gk, eq, ek = (sympy.Symbol(name, real=True) for name in ("gamma_q", "gamma_k", "e_q", "e_k"))
    a2, b2, a3, b3 = SIGMA_Q**2, SIGMA_K**2, gq * SIGMA_Q**3, gk * SIGMA_K**3
    a4, b4 = (eq + 3) * SIGMA_Q**4, (ek + 3) * SIGMA_K**4
    third = 6 * a2 * b2 * MU_Q * MU_K + 3 * a2 * b3 * MU_Q + 3 * a3 * b2 * MU_K + a3 * b3 + a3 * MU_K**3 + b3 * MU_Q**3
    skewed = (
        RandomEntries((q,), shaped(MU_Q, a2, gq)),
        RandomEntries((k,), shaped(MU_K, b2, gk)),
    )
    peaked = (
        RandomEntries((q,), shaped(0, a2, gq, eq)),
        RandomEntries((k,), shaped(0, b2, gk, ek)),
        AtLeast(d_k, 1),
    )
    signs = (RandomEntries((q,), shaped(0, 1, 0, -2)), RandomEntries((k,), shaped(0, 1, 0, -2)), AtLeast(d_k, 1))
    flat = (RandomEntries((q,), uniform()), RandomEntries((k,), uniform()), AtLeast(d_k, 1))
    return [
        claim_of(
            "variance.third",
            en="Third cumulant of a score, any means and skewness",
            ja="スコアの 3 次キュムラント(平均と歪度は任意)",
            lhs=Cumulant(SCORE, 3),
            rhs=d_k * third,
            laws=skewed,
            source=HERE,
        ),
        claim_of(
            "variance.fourth",
            en="Fourth cumulant of a score, any means, skewness and kurtosis",
            ja="スコアの 4 次キュムラント(平均・歪度・尖度は任意)",
            lhs=Cumulant(SCORE, 4),
            rhs=d_k * (_central_moment(4, a4, b4, a3, b3) - 3 * _central_moment(2, a4, b4, a3, b3) ** 2),
            laws=(
                RandomEntries((q,), shaped(MU_Q, a2, gq, eq)),
                RandomEntries((k,), shaped(MU_K, b2, gk, ek)),
            ),
            source=HERE,
        ),
        claim_of(
            "variance.skewness",
            en="Skewness of a score, centred components",
            ja="スコアの歪度(平均 0 の成分)",
            lhs=Skewness(SCORE),
            rhs=gq * gk / sympy.sqrt(d_k),
            laws=(
                RandomEntries((q,), shaped(0, a2, gq)),
                RandomEntries((k,), shaped(0, b2, gk)),
                AtLeast(d_k, 1),
            ),
            source=HERE,
        ),
        claim_of(
            "variance.kurtosis",
            en="Excess kurtosis of a score, centred components: it falls as 1/d_k",
            ja="スコアの過剰尖度(平均 0 の成分):1/d_k で減る",
            lhs=ExcessKurtosis(SCORE),
            rhs=((eq + 3) * (ek + 3) - 3) / d_k,
            laws=peaked,
            source=HERE,
            note={
                "en": "e_q + 3 and e_k + 3 are the components' kurtoses. Gaussian components give 6/d_k.",
                "ja": "e_q + 3 と e_k + 3 が成分の尖度。ガウスなら 6/d_k。",
            },
        ),
        claim_of(
            "variance.kurtosis_gaussian",
            en="Excess kurtosis of a score, centred Gaussian components",
            ja="スコアの過剰尖度(平均 0 のガウス成分)",
            lhs=ExcessKurtosis(SCORE),
            rhs=6 / d_k,
            laws=(*products(gaussian(0, a2), gaussian(0, b2)), AtLeast(d_k, 1)),
            source=HERE,
        ),
        claim_of(
            "variance.kurtosis_signs",
            en="Excess kurtosis of a score, components ±1",
            ja="スコアの過剰尖度(成分が ±1)",
            lhs=ExcessKurtosis(SCORE),
            rhs=-2 / d_k,
            laws=signs,
            source=HERE,
        ),
        claim_of(
            "variance.kurtosis_uniform",
            en="Excess kurtosis of a score, components uniform on [−1, 1]",
            ja="スコアの過剰尖度([−1, 1] の一様成分)",
            lhs=ExcessKurtosis(SCORE),
            rhs=sympy.Rational(6, 25) / d_k,
            laws=flat,
            source=HERE,
        ),
    ]


def dependence_claims() -> list[Claim]:
    pair = RandomEntries((q, k), GaussianPair((MU_Q, MU_K), (SIGMA_Q, SIGMA_K), RHO))
    zero = RandomEntries((q, k), GaussianPair((sympy.S.Zero, sympy.S.Zero), (SIGMA_Q, SIGMA_K), RHO))

    a, b = index("a"), index("b")

    def cumulant(r: int) -> Any:
        # d (r−1)!/2 [(1+ρ)^r + (−1)^r (1−ρ)^r] (σ_q σ_k)^r
        bracket = (1 + RHO) ** r + (-1) ** r * (1 - RHO) ** r
        return d_k * sympy.factorial(r - 1) / 2 * bracket * (SIGMA_Q * SIGMA_K) ** r

    return [
        claim_of(
            "variance.correlated_mean",
            en="Mean of a score, q and k jointly Gaussian with correlation ρ per component",
            ja="スコアの平均(q と k が成分ごとに相関 ρ のガウス)",
            lhs=Expect(SCORE),
            rhs=d_k * (MU_Q * MU_K + RHO * SIGMA_Q * SIGMA_K),
            laws=(pair,),
            source=HERE,
        ),
        claim_of(
            "variance.correlated",
            en="Variance of a score, q and k jointly Gaussian with correlation ρ per component",
            ja="スコアの分散(q と k が成分ごとに相関 ρ のガウス)",
            lhs=Variance(SCORE),
            rhs=d_k
            * (
                UNIT * (1 + RHO**2)
                + MU_Q**2 * SIGMA_K**2
                + MU_K**2 * SIGMA_Q**2
                + 2 * RHO * MU_Q * MU_K * SIGMA_Q * SIGMA_K
            ),
            laws=(pair,),
            source=HERE,
            observable="score_variance",
        ),
        claim_of(
            "variance.correlated_third",
            en="Third cumulant of a score, q and k centred Gaussian with correlation ρ",
            ja="スコアの 3 次キュムラント(平均 0、相関 ρ のガウス)",
            lhs=Cumulant(SCORE, 3),
            rhs=cumulant(3),
            laws=(zero,),
            source=HERE,
        ),
        claim_of(
            "variance.correlated_fourth",
            en="Fourth cumulant of a score, q and k centred Gaussian with correlation ρ",
            ja="スコアの 4 次キュムラント(平均 0、相関 ρ のガウス)",
            lhs=Cumulant(SCORE, 4),
            rhs=cumulant(4),
            laws=(zero,),
            source=HERE,
        ),
        claim_of(
            "variance.covariances_mean",
            en="Mean of a score, q and k centred Gaussian with any covariances: tr C",
            ja="スコアの平均(共分散が任意の平均 0 ガウス):tr C",
            lhs=Expect(SCORE),
            rhs=total(COV[a, a], a, d_k),
            laws=gaussian_field(),
            source=HERE,
        ),
        claim_of(
            "variance.covariances",
            en="Variance of a score, q and k centred Gaussian with any covariances: tr(Σ_q Σ_k) + tr(C²)",
            ja="スコアの分散(共分散が任意の平均 0 ガウス):tr(Σ_q Σ_k) + tr(C²)",
            lhs=Variance(SCORE),
            rhs=sympy.Sum(COV_Q[a, b] * COV_K[b, a] + COV[a, b] * COV[b, a], (b, 0, d_k - 1), (a, 0, d_k - 1)),
            laws=gaussian_field(),
            source=HERE,
            observable="score_variance",
        ),
        claim_of(
            "variance.aligned_power",
            en="Mean square of a score of correlated q and k: d_k for ρ = 0, d_k² for ρ ≠ 0",
            ja="相関のある q, k のスコアの二乗平均:ρ = 0 なら d_k、ρ ≠ 0 なら d_k²",
            lhs=Expect(SCORE**2),
            rhs=UNIT * (d_k * (1 + RHO**2) + d_k**2 * RHO**2),
            laws=(zero,),
            source=HERE,
            note={
                "en": "The argument for 1/d_k instead of 1/√d_k once q and k have aligned.",
                "ja": "q と k が揃った後に 1/√d_k でなく 1/d_k を使う根拠。",
            },
        ),
    ]
