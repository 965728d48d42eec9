"""Variance of attention scores: Var(q·k), what the mean adds, what scaling does, and how scores depend on each other.

Guarantees: every claim holds for all sizes and is checked by `moment-routes` (two exact derivations and enumeration).
Right sides are expressions in plain symbols named d_k, d_model, sigma_q, …, ready to be turned into functions.
Does not: say what softmax makes of a variance; that is the family `saturation`.
"""

from __future__ import annotations

import sympy

from derive.assumptions import AtLeast, InRange
from derive.catalogue import Claim
from derive.families._moments import (
    CROSS,
    MU_K,
    MU_Q,
    SCORE,
    SIGMA_K,
    SIGMA_Q,
    UNIT,
    claim_of,
    d_k,
    entry_of,
    i,
    independent_rows,
    j,
    k,
    l,
    m,
    n,
    q,
    vectors,
)
from derive.families._variance_self_attention import any_token_claims, fixed_token_claims, random_token_claims
from derive.families._variance_shape import dependence_claims, shape_claims
from derive.families._variance_weights import bias_and_head_claims, initialisation_claims, tied_claims
from derive.language import index
from derive.moments.laws import gaussian, mean_variance
from derive.moments.nodes import Covariance, Expect, Variance
from derive.source import HERE, VASWANI

c = index("c")


def claims() -> list[Claim]:
    return [
        *_one_score(),
        *shape_claims(),
        *dependence_claims(),
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
            via=[
                (
                    d_k * Variance(q[c] * k[c]),
                    "The terms of the sum are independent and alike, so variances add.",
                    "和の各項は独立で同じ法則に従うので、分散は足し合わされる。",
                ),
                (
                    d_k * (Expect(q[c] ** 2) * Expect(k[c] ** 2) - Expect(q[c]) ** 2 * Expect(k[c]) ** 2),
                    "q and k are independent.",
                    "q と k は独立。",
                ),
                (
                    d_k * ((SIGMA_Q**2 + MU_Q**2) * (SIGMA_K**2 + MU_K**2) - MU_Q**2 * MU_K**2),
                    "A mean square is the variance and the squared mean.",
                    "二乗平均は分散と平均の二乗の和。",
                ),
            ],
            last=("Multiplied out.", "展開する。"),
            rhs=d_k * (UNIT + MU_Q**2 * SIGMA_K**2 + MU_K**2 * SIGMA_Q**2),
            laws=(*vectors(), AtLeast(d_k, 1), InRange(c, sympy.S.Zero, d_k - 1)),
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
            via=[(Variance(SCORE) / d_k, "A factor leaves a variance squared.", "分散の外に出る係数は二乗になる。")],
            last=("The variance of the score is d_k σ_q² σ_k².", "スコアの分散は d_k σ_q² σ_k²。"),
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
