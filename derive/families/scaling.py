"""The scale 1/√d_k: where it may be applied, what it does to gradients, and that it frees the variance of d_k.

Guarantees: for all sizes with d_k ≥ 1.
Does not: say which scale is best; the variance of a score before scaling is `variance.scores`.
"""

from __future__ import annotations

from sympy import KroneckerDelta, Rational, exp

from derive.assumptions import AtLeast
from derive.catalogue import Claim
from derive.families._attention import (
    INPUTS,
    ROOT,
    Attention,
    a,
    b,
    c,
    d_k,
    derivation,
    i,
    j,
    l,
    m,
    n,
    place,
    scale,
    softmax,
)
from derive.language import Diff, scalar, total
from derive.source import HERE, VASWANI

_SOURCE = VASWANI.at("section 3.2.1, equation 1")


def claims() -> list[Claim]:
    return [_queries(), _split(), _variance_free(), _jacobian(), _temperature(), _weight_slope()]


def _queries() -> Claim:
    layer = Attention(m)
    return derivation(
        "scaling.queries",
        ("Scaling the scores = scaling the queries", "スコアのスケーリング = クエリのスケーリング"),
        (layer.scaled[i, j], total((layer.Q[i, c] / ROOT) * layer.K[j, c], c, d_k)),
        assumptions=(AtLeast(d_k, 1), *place((i, n), (j, m)), *layer.defined),
        source=_SOURCE,
        symbols={k: INPUTS[k] for k in ("Q", "K", "S'")},
        note=(
            "Equal in real arithmetic; in floating point the two orders round differently.",
            "実数演算では等しい。浮動小数点では丸めが異なる。",
        ),
    )


def _split() -> Claim:
    layer = Attention(m)
    root = d_k ** Rational(-1, 4)
    return derivation(
        "scaling.split",
        ("The scale shared by queries and keys, d_k^(−1/4) each", "スケールをクエリとキーに d_k^(−1/4) ずつ分ける"),
        (layer.scaled[i, j], total((root * layer.Q[i, c]) * (root * layer.K[j, c]), c, d_k)),
        assumptions=(AtLeast(d_k, 1), *place((i, n), (j, m)), *layer.defined),
        source=HERE,
    )


def _variance_free() -> Claim:
    sigma_q, sigma_k = scalar("sigma_q", positive=True), scalar("sigma_k", positive=True)
    return derivation(
        "scaling.variance_free",
        ("Scaled by 1/√d_k, the variance is free of d_k", "1/√d_k でスケールすると分散は d_k によらない"),
        (total((sigma_q * sigma_k / ROOT) ** 2, c, d_k), sigma_q**2 * sigma_k**2),
        assumptions=(AtLeast(d_k, 1),),
        source=VASWANI.at("section 3.2.1, footnote 4"),
        premises=("variance.scaled",),
        symbols={"sigma_q": "standard deviation of a query's component", "sigma_k": "of a key's component"},
        note=(
            "d_k independent centred products, each of variance (σ_q σ_k/√d_k)², add up to σ_q² σ_k².",
            "分散 (σ_q σ_k/√d_k)² の独立な積 d_k 個の和の分散は σ_q² σ_k² になる。",
        ),
    )


def _jacobian() -> Claim:
    layer = Attention(m)
    return derivation(
        "scaling.jacobian",
        ("Derivative of a scaled score by a query", "スケール後スコアのクエリによる微分"),
        (Diff(layer.scaled[i, j], layer.Q[a, b]), KroneckerDelta(i, a) * layer.K[j, b] / ROOT),
        assumptions=(AtLeast(d_k, 1), *place((i, n), (j, m), (a, n), (b, d_k)), *layer.defined),
        source=HERE,
    )


def _temperature() -> Claim:
    layer = Attention(m)

    def hot(row: object, key: object) -> object:
        return scale * layer.S[row, key]

    weight = softmax(hot, i, j, m)
    mean = total(softmax(hot, i, l, m) * layer.S[i, l], l, m)
    return derivation(
        "scaling.temperature",
        ("Derivative of a weight by the scale", "重みのスケールによる微分"),
        (Diff(weight, scale), weight * (layer.S[i, j] - mean)),
        assumptions=(AtLeast(m, 1), *place((i, n), (j, m))),
        source=HERE,
        symbols={"tau": "the scale, 1/√d_k by default", "S": INPUTS["S"]},
        note=(
            "A weight grows with the scale exactly where its score is above the weighted mean of its row.",
            "スコアが行の加重平均を上回る重みだけが、スケールとともに増える。",
        ),
    )


def _weight_slope() -> Claim:
    layer = Attention(m)
    return derivation(
        "scaling.odds",
        (
            "Odds of two keys: the exponential of the scaled score difference",
            "2つのキーのオッズ:スケール後スコア差の指数",
        ),
        (
            layer.alpha[i, j] / layer.alpha[i, b],
            exp((layer.S[i, j] - layer.S[i, b]) / ROOT),
        ),
        assumptions=(*layer.sizes, *place((i, n), (j, m), (b, m)), *layer.defined),
        source=HERE,
    )
