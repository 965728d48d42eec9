"""Variance of attention scores: Var(q·k), what the mean adds, what scaling does, and how scores depend on each other.

Guarantees: every claim holds for all sizes and is checked by `moment-routes` (two exact derivations and enumeration).
Right sides are expressions in plain symbols named d_k, d_model, sigma_q, …, ready to be turned into functions.
Does not: say what softmax makes of a variance; that is the family `saturation`.
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
    CROSS,
    MU_K,
    MU_Q,
    RHO,
    SCORE,
    SIGMA_K,
    SIGMA_Q,
    UNIT,
    claim_of,
    d_k,
    entry_of,
    gaussian_field,
    i,
    independent_rows,
    j,
    k,
    l,
    m,
    n,
    products,
    q,
    vectors,
)
from derive.families._variance_self_attention import (
    any_token_claims,
    bias_and_head_claims,
    fixed_token_claims,
    initialisation_claims,
    random_token_claims,
    tied_claims,
)
from derive.language import index, total
from derive.moments.laws import gaussian, mean_variance, shaped, uniform
from derive.moments.model import GaussianPair
from derive.moments.nodes import Covariance, Cumulant, ExcessKurtosis, Expect, Skewness, Variance
from derive.source import HERE, VASWANI


def claims() -> list[Claim]:
    return [
        *_one_score(),
        *_higher_cumulants(),
        *_correlated(),
        *_rows(),
        *fixed_token_claims(),
        *any_token_claims(),
        *random_token_claims(),
        *tied_claims(),
        *bias_and_head_claims(),
        *initialisation_claims(),
    ]


def _one_score() -> list[Claim]:
    return [
        claim_of(
            "variance.mean",
            en="Mean of a score q·k",
            ja="スコア q·k の平均",
            lhs=Expect(SCORE),
            rhs=d_k * MU_Q * MU_K,
            laws=vectors(),
            source=HERE,
        ),
        claim_of(
            "variance.scores",
            en="Variance of a score q·k",
            ja="スコア q·k の分散",
            lhs=Variance(SCORE),
            rhs=d_k * (UNIT + MU_Q**2 * SIGMA_K**2 + MU_K**2 * SIGMA_Q**2),
            laws=vectors(),
            source=VASWANI.at("section 3.2.1, footnote 4 (zero means, unit variances)"),
            observable="score_variance",
            note={
                "en": "Only means and variances are needed. With zero means and unit variances it is d_k.",
                "ja": "必要なのは平均と分散だけ。平均 0、分散 1 のとき d_k になる。",
            },
        ),
        claim_of(
            "variance.scaled",
            en="Variance of a scaled score, centred components: free of d_k",
            ja="スケール後のスコアの分散(平均 0 の成分):d_k によらない",
            lhs=Variance(SCORE / sympy.sqrt(d_k)),
            rhs=UNIT,
            laws=(*vectors(0, 0), AtLeast(d_k, 1)),
            source=VASWANI.at("section 3.2.1, footnote 4"),
            observable="score_variance",
            note={
                "en": "Dividing by √d_k makes the variance one number for every d_k: the reason given for 1/√d_k.",
                "ja": "√d_k で割ると分散は d_k によらない一定値になる。1/√d_k を使う理由である。",
            },
        ),
        claim_of(
            "variance.scaled_by_d",
            en="Variance of q·k/d_k, centred components: it falls as 1/d_k",
            ja="q·k/d_k の分散(平均 0 の成分):1/d_k で減る",
            lhs=Variance(SCORE / d_k),
            rhs=UNIT / d_k,
            laws=(*vectors(0, 0), AtLeast(d_k, 1)),
            source=HERE,
            observable="score_variance",
        ),
    ]


def _higher_cumulants() -> list[Claim]:
    gq, gk, eq, ek = (sympy.Symbol(name, real=True) for name in ("gamma_q", "gamma_k", "e_q", "e_k"))
    a2, b2, a3, b3 = SIGMA_Q**2, SIGMA_K**2, gq * SIGMA_Q**3, gk * SIGMA_K**3
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


def _correlated() -> list[Claim]:
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


def _rows() -> list[Claim]:
    laws = independent_rows(mean_variance(MU_Q, SIGMA_Q**2), mean_variance(MU_K, SIGMA_K**2))
    standard = independent_rows(gaussian(), gaussian())
    total = sympy.Sum(CROSS[i, j] ** 2, (i, 0, n - 1), (j, 0, m - 1)) / (n * m)
    return [
        claim_of(
            "variance.row_covariance",
            en="Covariance of two scores in one row: the mean of the keys makes it",
            ja="同じ行の 2 つのスコアの共分散:キーの平均から生じる",
            lhs=Covariance(CROSS[i, j], CROSS[i, l]),
            rhs=d_k * SIGMA_Q**2 * MU_K**2,
            laws=(*laws, *entry_of(i, j, ("column", l))),
            source=HERE,
        ),
        claim_of(
            "variance.column_covariance",
            en="Covariance of two scores in one column: the mean of the queries makes it",
            ja="同じ列の 2 つのスコアの共分散:クエリの平均から生じる",
            lhs=Covariance(CROSS[i, j], CROSS[l, j]),
            rhs=d_k * SIGMA_K**2 * MU_Q**2,
            laws=(*laws, *entry_of(i, j, ("row", l))),
            source=HERE,
        ),
        claim_of(
            "variance.within_row",
            en="Within-row variance of scores: all that softmax sees",
            ja="行内のスコアの分散:softmax に見えるのはこれだけ",
            lhs=Expect((CROSS[i, j] - CROSS[i, l]) ** 2) / 2,
            rhs=d_k * SIGMA_K**2 * (SIGMA_Q**2 + MU_Q**2),
            laws=(*laws, *entry_of(i, j, ("column", l))),
            source=HERE,
            observable="row_variance",
            note={
                "en": "The mean of the keys cancels in a row; the mean of the queries does not.",
                "ja": "キーの平均は行の中で打ち消し合うが、クエリの平均は残る。",
            },
        ),
        claim_of(
            "variance.squares",
            en="Variance of a squared score, standard Gaussian components",
            ja="スコアの二乗の分散(標準ガウス成分)",
            lhs=Variance(CROSS[i, j] ** 2),
            rhs=2 * d_k**2 + 6 * d_k,
            laws=(*standard, *entry_of(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.squares_in_row",
            en="Covariance of the squares of two scores in one row: they are not independent",
            ja="同じ行の 2 つのスコアの二乗の共分散:独立ではない",
            lhs=Covariance(CROSS[i, j] ** 2, CROSS[i, l] ** 2),
            rhs=2 * d_k,
            laws=(*standard, *entry_of(i, j, ("column", l))),
            source=HERE,
            note={"en": "Their correlation is 1/(d_k + 3).", "ja": "相関係数は 1/(d_k + 3)。"},
        ),
        claim_of(
            "variance.mean_square",
            en="Variance of the mean square of all scores of one product QKᵀ",
            ja="1 つの積 QKᵀ の全スコアの二乗平均の分散",
            lhs=Variance(total),
            rhs=(2 * d_k**2 + 6 * d_k) / (n * m) + 2 * d_k * (n + m - 2) / (n * m),
            laws=(*standard, AtLeast(n, 1), AtLeast(m, 1)),
            source=HERE,
            note={
                "en": "Treating the n·m scores as independent keeps the first term alone.",
                "ja": "n·m 個のスコアを独立とみなすと第 1 項しか残らない。",
            },
        ),
    ]
