"""Variance claims for self-attention by kind of weights: tied, with biases, of several heads, as initialised."""

from __future__ import annotations

from typing import Any

import sympy

from derive.assumptions import AtLeast
from derive.catalogue import Claim
from derive.families._moments import (
    B_K,
    B_Q,
    S2,
    SCORE,
    SIGMA_K,
    SIGMA_Q,
    SIGMA_W,
    SIGMA_X,
    UNIT,
    G,
    S,
    claim_of,
    d_k,
    d_model,
    fixed_biases,
    fixed_tokens,
    h,
    i,
    j,
    l,
    length_squared,
    random_biases,
    random_tokens,
    rows,
    squares_in_common,
    two_heads,
    vectors,
)
from derive.moments.laws import gaussian, he, inverse_root, lecun, mean_variance, orthogonal, shaped, xavier
from derive.moments.nodes import Covariance, Expect, Variance
from derive.source import GLOROT, HE, HERE, LECUN


def tied_claims() -> list[Claim]:
    e = sympy.Symbol("e_w", real=True)
    sigma = SIGMA_W
    fixed = fixed_tokens(shaped(0, sigma**2, 0, e))
    normal = random_tokens(gaussian(0, SIGMA_X**2), gaussian(0, sigma**2))
    return [
        claim_of(
            "variance.tied_mean",
            en="Mean of a score with tied weights W_Q = W_K, tokens fixed",
            ja="重み共有 W_Q = W_K のスコアの平均(トークン固定)",
            lhs=Expect(S[i, j]),
            rhs=d_k * sigma**2 * G[i, j],
            laws=(*fixed, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.tied_fixed",
            en="Variance of a score with tied weights, tokens fixed",
            ja="重み共有のスコアの分散(トークン固定)",
            lhs=Variance(S[i, j]),
            rhs=d_k * sigma**4 * (G[i, i] * G[j, j] + G[i, j] ** 2 + e * squares_in_common(i, j)),
            laws=(*fixed, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.tied_diagonal_mean",
            en="Mean of a diagonal score with tied weights: every token attends to itself",
            ja="重み共有の対角スコアの平均:各トークンは自分に注意を向ける",
            lhs=Expect(S[i, i]),
            rhs=d_k * d_model * sigma**2 * SIGMA_X**2,
            laws=(*normal, *rows(i)),
            source=HERE,
        ),
        claim_of(
            "variance.tied",
            en="Mean square of a score off the diagonal with tied weights, tokens random",
            ja="重み共有の非対角スコアの二乗平均(トークンもランダム)",
            lhs=Expect(S[i, j] ** 2),
            rhs=d_k * d_model * (d_model + d_k + 1) * sigma**4 * SIGMA_X**4,
            laws=(*normal, *rows(i, j)),
            source=HERE,
        ),
    ]


def bias_and_head_claims() -> list[Claim]:
    beta_q, beta_k = (sympy.Symbol(name, positive=True) for name in ("beta_q", "beta_k"))
    laws = (
        *random_biases(beta_q, beta_k),
        *fixed_tokens(mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))[1:],
    )
    fixed = (*fixed_biases(), *fixed_tokens(mean_variance(0, SIGMA_Q**2), mean_variance(0, SIGMA_K**2))[1:])
    return [
        claim_of(
            "variance.biases",
            en="Variance of a score whose queries and keys have random biases, tokens fixed",
            ja="クエリとキーにランダムなバイアスがあるスコアの分散(トークン固定)",
            lhs=Variance(S[i, j]),
            rhs=d_k * (SIGMA_Q**2 * G[i, i] + beta_q**2) * (SIGMA_K**2 * G[j, j] + beta_k**2),
            laws=(*laws, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.fixed_biases",
            en="Variance of a score over the weights, biases and tokens fixed",
            ja="スコアの重みについての分散(バイアスとトークンは固定)",
            lhs=Variance(S[i, j]),
            rhs=d_k * UNIT * G[i, i] * G[j, j]
            + SIGMA_Q**2 * G[i, i] * length_squared(B_K)
            + SIGMA_K**2 * G[j, j] * length_squared(B_Q),
            laws=(*fixed, *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.biases_row",
            en="Within-row variance with random biases: the bias of the keys cancels",
            ja="バイアスがあるときの行内分散:キーのバイアスは打ち消される",
            lhs=Expect((S[i, j] - S[i, l]) ** 2) / 2,
            rhs=d_k * (SIGMA_Q**2 * G[i, i] + beta_q**2) * SIGMA_K**2 * (G[j, j] + G[l, l] - 2 * G[j, l]) / 2,
            laws=(*laws, *rows(i, j, l)),
            source=HERE,
        ),
        claim_of(
            "variance.heads",
            en="Scores of two heads are uncorrelated at initialisation, tokens random",
            ja="初期化時、2 つのヘッドのスコアは無相関(トークンもランダム)",
            lhs=Covariance(S[i, j], S2[i, j]),
            rhs=sympy.S.Zero,
            laws=(*two_heads(mean_variance(0, SIGMA_X**2), mean_variance(0, SIGMA_W**2)), *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.heads_share_tokens",
            en="Squared scores of two heads are not uncorrelated: they share their tokens",
            ja="2 つのヘッドのスコアの二乗は無相関ではない:トークンを共有するため",
            lhs=Covariance(S[i, j] ** 2, S2[i, j] ** 2),
            rhs=d_k**2 * SIGMA_W**8 * SIGMA_X**8 * 4 * d_model**2 * (d_model + 1),
            laws=(*two_heads(gaussian(0, SIGMA_X**2), mean_variance(0, SIGMA_W**2)), *rows(i, j)),
            source=HERE,
        ),
        claim_of(
            "variance.heads_wrong_scale",
            en="Scores of one of h heads divided by √d_model = √(h·d_k) by mistake: variance 1/h of what it should be",
            ja="h 個のヘッドで誤って √d_model = √(h·d_k) で割ると、分散は 1/h になる",
            lhs=Variance(SCORE / sympy.sqrt(h * d_k)),
            rhs=UNIT / h,
            laws=(*vectors(0, 0), AtLeast(d_k, 1), AtLeast(h, 1)),
            source=HERE,
            observable="score_variance",
        ),
    ]


def initialisation_claims() -> list[Claim]:
    # Variance of a weight, the law of the weights, and where it comes from.
    fan = d_model + d_k
    fiftieth = sympy.Rational(1, 2500)
    flat = xavier(d_model, d_k, shape="uniform")
    table: list[tuple[str, str, str, Any, Any, Any]] = [
        ("xavier", "Xavier (Glorot) normal", "Xavier(Glorot)正規", xavier(d_model, d_k), 2 / fan, GLOROT),
        ("xavier_uniform", "Xavier (Glorot) uniform", "Xavier(Glorot)一様", flat, 2 / fan, GLOROT),
        ("lecun", "LeCun", "LeCun", lecun(d_model), 1 / d_model, LECUN),
        ("he", "He", "He", he(d_model), 2 / d_model, HE),
        (
            "inverse_root",
            "uniform on ±1/√d_model",
            "±1/√d_model の一様",
            inverse_root(d_model),
            1 / (3 * d_model),
            HERE,
        ),
        ("normal", "N(0, 0.02²)", "N(0, 0.02²)", gaussian(0, fiftieth), fiftieth, HERE),
        ("orthogonal", "orthogonal columns", "直交列", orthogonal(d_model), 1 / d_model, HERE),
    ]
    found = []
    for name, en, ja, law, variance, source in table:
        laws = (
            *random_tokens(mean_variance(0, 1), law, law),
            *rows(i, j),
            AtLeast(d_k, 1),
            AtLeast(d_model, 1),
            *(("d_k ≤ d_model",) if name == "orthogonal" else ()),
        )
        found.append(
            claim_of(
                f"variance.init_{name}",
                en=f"Variance of a scaled score at initialisation: {en}",
                ja=f"初期化時のスケール後スコアの分散:{ja}",
                lhs=Variance(S[i, j] / sympy.sqrt(d_k)),
                rhs=sympy.factor(d_model**2 * variance**2),
                laws=laws,
                source=source,
                observable="score_variance",
                note={
                    "en": "Tokens with independent entries of mean 0 and variance 1, off the diagonal.",
                    "ja": "平均 0、分散 1 の独立成分をもつトークン、非対角成分。",
                },
            )
        )
    return found
