"""Variance claims for self-attention, with queries and keys from one X.

The score is s_ij = Σ_c (Σ_a X_ia W_Q,ac)(Σ_b X_jb W_K,bc). With X fixed its law over the weights holds Gram entries
⟨x_i, x_j⟩; with X random too, the diagonal of S has a law of its own.
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.assumptions import AtLeast, InRange
from derive.catalogue import Claim
from derive.families._moments import (
    CROSS,
    CROSS_SCORES,
    GRAM,
    MU_X,
    SIGMA_K,
    SIGMA_Q,
    SIGMA_X,
    UNIT,
    G,
    K,
    Q,
    S,
    claim_of,
    d_k,
    d_model,
    fixed_tokens,
    i,
    j,
    l,
    linear_forms,
    m,
    n,
    random_tokens,
    row_variance_of,
    rows,
)
from derive.language import index, total
from derive.moments.laws import gaussian, mean_variance, shaped
from derive.moments.nodes import Covariance, Expect, Variance
from derive.source import HERE


def fixed_token_claims() -> list[Claim]:
    laws = fixed_tokens(mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))
    c = index("c")
    query, key = linear_forms(i, j, c)
    return [
        claim_of(
            "variance.self_attention_fixed",
            en="Variance of a self-attention score over the weights, tokens fixed",
            ja="自己注意スコアの重みについての分散(トークン固定)",
            lhs=Variance(S[i, j]),
            via=[
                (
                    d_k * Variance(query * key),
                    "Columns of the weights are independent and alike, so variances add.",
                    "重みの各列は独立で同じ法則に従うので、分散は足し合わされる。",
                ),
                (
                    d_k * Expect(query**2) * Expect(key**2),
                    "W_Q and W_K are independent, and all means are 0.",
                    "W_Q と W_K は独立で、平均はすべて 0。",
                ),
            ],
            last=("E (Σ_a x_a w_a)² = σ² ‖x‖².", "E (Σ_a x_a w_a)² = σ² ‖x‖²。"),
            rhs=d_k * UNIT * G[i, i] * G[j, j],
            laws=(*laws, *rows(i, j), AtLeast(d_k, 1), InRange(c, sympy.S.Zero, d_k - 1)),
            source=HERE,
            observable="score_variance",
        ),
        claim_of(
            "variance.self_attention_fixed_row",
            en="Covariance of two self-attention scores in one row, tokens fixed",
            ja="同じ行の自己注意スコアの共分散(トークン固定)",
            lhs=Covariance(S[i, j], S[i, l]),
            rhs=d_k * UNIT * G[i, i] * G[j, l],
            laws=(*laws, *rows(i, j, l)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_fixed_column",
            en="Covariance of two self-attention scores in one column, tokens fixed",
            ja="同じ列の自己注意スコアの共分散(トークン固定)",
            lhs=Covariance(S[i, j], S[l, j]),
            rhs=d_k * UNIT * G[i, l] * G[j, j],
            laws=(*laws, *rows(i, j, l)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_fixed_transpose",
            en="Covariance of s_ij and s_ji, tokens fixed",
            ja="s_ij と s_ji の共分散(トークン固定)",
            lhs=Covariance(S[i, j], S[j, i]),
            rhs=d_k * UNIT * G[i, j] ** 2,
            laws=(*laws, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_fixed_row_variance",
            en="Within-row variance of self-attention scores, tokens fixed: close tokens have close scores",
            ja="自己注意スコアの行内分散(トークン固定):近いトークンはスコアも近い",
            lhs=Expect((S[i, j] - S[i, l]) ** 2) / 2,
            rhs=d_k * UNIT * G[i, i] * (G[j, j] + G[l, l] - 2 * G[j, l]) / 2,
            laws=(*laws, *rows(i, j, l)),
            source=HERE,
            note={
                "en": "For tokens of equal length and cosine c it is (1 − c) times the variance of one score.",
                "ja": "長さが等しく余弦 c のトークンでは、1 つのスコアの分散の (1 − c) 倍。",
            },
        ),
    ]


def any_token_claims() -> list[Claim]:
    """Within-row variance of scores for tokens of any kind, and with any queries and keys."""
    laws = fixed_tokens(mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))
    lengths = total(G[i, i], i, n) / n
    spread = lengths - sympy.Sum(G[j, l], (l, 0, n - 1), (j, 0, n - 1)) / n**2
    return [
        claim_of(
            "variance.arbitrary_tokens",
            en="Mean within-row variance of self-attention scores for any tokens: mean ‖x‖² times mean ‖x − x̄‖²",
            ja="任意のトークンに対する自己注意スコアの平均行内分散:‖x‖² の平均と ‖x − x̄‖² の平均の積",
            lhs=Expect(row_variance_of(S, n)),
            rhs=d_k * UNIT * lengths * spread,
            laws=(*laws, AtLeast(n, 1)),
            source=HERE,
            observable="row_variance",
            note={
                "en": "The second factor is the mean of ⟨x_i, x_i⟩ less the mean of all ⟨x_j, x_l⟩.",
                "ja": "第 2 因子は ⟨x_i, x_i⟩ の平均から全 ⟨x_j, x_l⟩ の平均を引いたもの。",
            },
        ),
        claim_of(
            "variance.any_data",
            en="Within-row variance of scores of any data: second moments of queries with the covariance of keys",
            ja="任意のデータのスコアの行内分散:クエリの 2 次モーメントとキーの共分散のトレース",
            lhs=row_variance_of(CROSS, m),
            rhs=_trace_of_moments(),
            laws=(CROSS_SCORES, AtLeast(n, 1), AtLeast(m, 1)),
            source=HERE,
            observable="row_variance",
            rule="normal-form",
            note={
                "en": "Pure algebra: nothing is random. Σ_ab M_ab V_ab with M = QᵀQ/n and V the keys' covariance.",
                "ja": "純粋な代数で、確率は使わない。M = QᵀQ/n、V はキーの共分散。",
            },
        ),
    ]


def _trace_of_moments() -> Any:
    a, b = index("a"), index("b")
    second = total(Q[i, a] * Q[i, b], i, n) / n
    means = total(K[j, a], j, m) / m * (total(K[j, b], j, m) / m)
    covariance = total(K[j, a] * K[j, b], j, m) / m - means
    return sympy.Sum(second * covariance, (b, 0, d_k - 1), (a, 0, d_k - 1))


def random_token_claims() -> list[Claim]:
    ex = sympy.Symbol("e_x", real=True)
    laws = random_tokens(mean_variance(0, SIGMA_X**2), mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))
    shape = random_tokens(shaped(0, SIGMA_X**2, 0, ex), mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))
    normal = random_tokens(gaussian(0, SIGMA_X**2), mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))
    shifted = random_tokens(mean_variance(MU_X, SIGMA_X**2), mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))
    scale = d_k * UNIT * SIGMA_X**4
    return [
        claim_of(
            "variance.self_attention_offdiagonal",
            en="Variance of a self-attention score off the diagonal, tokens random",
            ja="自己注意スコアの分散(非対角、トークンもランダム)",
            lhs=Variance(S[i, j]),
            via=[
                (
                    d_k * UNIT * Expect(G[i, i] * G[j, j]),
                    "The law for fixed tokens, averaged over the tokens.",
                    "トークンを固定した法則を、トークンについて平均する。",
                ),
                (
                    d_k * UNIT * Expect(G[i, i]) * Expect(G[j, j]),
                    "Two tokens are independent.",
                    "2 つのトークンは独立。",
                ),
            ],
            last=("E ‖x‖² = d_model σ_x².", "E ‖x‖² = d_model σ_x²。"),
            rhs=scale * d_model**2,
            laws=(*laws, GRAM, *rows(i, j)),
            source=HERE,
            observable="score_variance",
        ),
        claim_of(
            "variance.self_attention_diagonal",
            en="Variance of a self-attention score on the diagonal: it has its own law",
            ja="自己注意スコアの分散(対角):非対角とは別の法則",
            lhs=Variance(S[i, i]),
            via=[
                (
                    d_k * UNIT * Expect(G[i, i] ** 2),
                    "The law for fixed tokens with j = i, averaged over the token.",
                    "トークンを固定した法則で j = i とし、トークンについて平均する。",
                )
            ],
            last=(
                "E ‖x‖⁴ = (E ‖x‖²)² + d_model Var(x²), and Var(x²) = (2 + e_x) σ_x⁴.",
                "E ‖x‖⁴ = (E ‖x‖²)² + d_model Var(x²)、Var(x²) = (2 + e_x) σ_x⁴。",
            ),
            rhs=scale * d_model * (d_model + 2 + ex),
            laws=(*shape, GRAM, *rows(i)),
            source=HERE,
            note={
                "en": "e_x is the excess kurtosis of a token's entries, 0 for Gaussian ones.",
                "ja": "e_x はトークン成分の過剰尖度。ガウスなら 0。",
            },
        ),
        claim_of(
            "variance.self_attention_diagonals",
            en="Covariance of two diagonal self-attention scores",
            ja="対角の 2 つの自己注意スコアの共分散",
            lhs=Covariance(S[i, i], S[j, j]),
            rhs=scale * d_model,
            laws=(*laws, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_row",
            en="Two self-attention scores in one row are uncorrelated, tokens random",
            ja="同じ行の自己注意スコアは無相関(トークンもランダム)",
            lhs=Covariance(S[i, j], S[i, l]),
            rhs=sympy.S.Zero,
            laws=(*laws, *rows(i, j, l)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_column",
            en="Two self-attention scores in one column are uncorrelated, tokens random",
            ja="同じ列の自己注意スコアは無相関(トークンもランダム)",
            lhs=Covariance(S[i, j], S[l, j]),
            rhs=sympy.S.Zero,
            laws=(*laws, *rows(i, j, l)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_common_mean",
            en="Covariance of two self-attention scores in one row when the tokens have a common mean",
            ja="トークンに共通の平均があるとき、同じ行の自己注意スコアの共分散",
            lhs=Covariance(S[i, j], S[i, l]),
            rhs=d_k * UNIT * d_model**2 * (SIGMA_X**2 + MU_X**2) * MU_X**2,
            laws=(*shifted, *rows(i, j, l)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_transpose",
            en="Covariance of s_ij and s_ji, tokens random: it is not 0",
            ja="s_ij と s_ji の共分散(トークンもランダム):0 ではない",
            lhs=Covariance(S[i, j], S[j, i]),
            rhs=scale * d_model,
            laws=(*laws, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.self_attention_diagonal_offdiagonal",
            en="A diagonal score and one off the diagonal of its row are uncorrelated",
            ja="対角スコアと同じ行の非対角スコアは無相関",
            lhs=Covariance(S[i, i], S[i, j]),
            rhs=sympy.S.Zero,
            laws=(*normal, *rows(i, j)),
            source=HERE,
        ),
    ]
