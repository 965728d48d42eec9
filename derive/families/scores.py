"""Scores S = QKᵀ: index form, matrix form, what X makes of them, and their rank.

Guarantees: for all sizes. The rank and the bilinear form hold for raw scores: no bias in the projections, no RoPE, no
additive bias and no softcap.
Does not: speak of the rank of the weights alpha, which is not bounded by d_k.
"""

from __future__ import annotations

from sympy import KroneckerDelta

from derive.assumptions import Defined
from derive.catalogue import Claim
from derive.families._attention import (
    INPUTS,
    W_K,
    W_Q,
    Attention,
    X,
    a,
    b,
    c,
    d_k,
    d_model,
    derivation,
    i,
    j,
    l,
    m,
    n,
    p,
    place,
    q,
)
from derive.language import Diff, array, total
from derive.source import HERE, VASWANI
from derive.step import Step

_SOURCE = VASWANI.at("section 3.2.1, equation 1")


def claims() -> list[Claim]:
    return [_matrix(), _bilinear(), _jacobian_q(), _jacobian_k(), _rank(), _symmetric_part()]


def _cross() -> Attention:
    return Attention(m)


def _matrix() -> Claim:
    layer = _cross()
    transposed = array("K^T", d_k, m)
    row = total(KroneckerDelta(i, l) * layer.Q[l, c], l, n)
    return derivation(
        "scores.matrix",
        ("Scores, pair by pair = matrix product QKᵀ", "スコア:対ごとの内積 = 行列積 QKᵀ"),
        (
            layer.S[i, j],
            total(row * transposed[c, j], c, d_k),
            total(KroneckerDelta(i, l) * total(layer.Q[l, c] * layer.K[j, c], c, d_k), l, n),
        ),
        assumptions=(
            *place((i, n), (j, m)),
            layer.defined[0],
            Defined(transposed, (c, j), layer.K[j, c]),
        ),
        source=_SOURCE,
        symbols={k: INPUTS[k] for k in ("Q", "K", "S")},
    )


def _bilinear() -> Claim:
    layer = Attention(n, from_x=True)
    between = total(W_Q[p, c] * W_K[q, c], c, d_k)
    return derivation(
        "scores.bilinear",
        ("Scores as a bilinear form: S = X W^Q (W^K)ᵀ Xᵀ", "双線形形式としてのスコア:S = X W^Q (W^K)ᵀ Xᵀ"),
        (
            layer.S[i, j],
            total(total(X[i, p] * W_Q[p, c], p, d_model) * total(X[j, q] * W_K[q, c], q, d_model), c, d_k),
            total(total(X[i, p] * between * X[j, q], q, d_model), p, d_model),
        ),
        assumptions=(*place((i, n), (j, n)), *layer.defined),
        source=_SOURCE,
        symbols={k: INPUTS[k] for k in ("X", "W_Q", "W_K", "S")},
        notes=[
            ("Queries and keys opened.", "クエリとキーを定義に戻す。"),
            ("The sums over d_model leave the sum over d_k.", "d_model の和を d_k の和の外に出す。"),
        ],
    )


def _jacobian_q() -> Claim:
    layer = _cross()
    return derivation(
        "scores.jacobian_query",
        ("Derivative of a score by a query", "スコアのクエリによる微分"),
        (Diff(layer.S[i, j], layer.Q[a, b]), KroneckerDelta(i, a) * layer.K[j, b]),
        assumptions=(*place((i, n), (j, m), (a, n), (b, d_k)), layer.defined[0]),
        source=HERE,
    )


def _jacobian_k() -> Claim:
    layer = _cross()
    return derivation(
        "scores.jacobian_key",
        ("Derivative of a score by a key", "スコアのキーによる微分"),
        (Diff(layer.S[i, j], layer.K[a, b]), KroneckerDelta(j, a) * layer.Q[i, b]),
        assumptions=(*place((i, n), (j, m), (a, m), (b, d_k)), layer.defined[0]),
        source=HERE,
    )


def _symmetric_part() -> Claim:
    layer = Attention(n, from_x=True)
    between = total(W_Q[p, c] * W_K[q, c] - W_Q[q, c] * W_K[p, c], c, d_k)
    return derivation(
        "scores.asymmetry",
        (
            "S is symmetric up to the antisymmetric part of W^Q (W^K)ᵀ",
            "S の非対称性は W^Q (W^K)ᵀ の反対称部分だけから来る",
        ),
        (
            layer.S[i, j] - layer.S[j, i],
            total(total(X[i, p] * between * X[j, q], q, d_model), p, d_model),
        ),
        assumptions=(*place((i, n), (j, n)), *layer.defined),
        source=HERE,
    )


def _rank() -> Claim:
    layer = _cross()
    conditions = (*place((i, n), (j, m)), layer.defined[0])
    step = Step(
        layer.S[i, j],
        d_k,
        "rank-factorisation",
        relation="rank",
        assumptions=conditions,
        data={"rows": i, "columns": j, "left": layer.Q[i, c], "right": layer.K[j, c], "inner": c},
        note={
            "en": "An n × m matrix that is a product of n × d_k and d_k × m has rank at most d_k.",
            "ja": "n × d_k と d_k × m の積である n × m 行列の階数は d_k 以下である。",
        },
    )
    return Claim(
        "scores.rank",
        {"en": "Rank of the score matrix is at most d_k", "ja": "スコア行列の階数は d_k 以下"},
        layer.S[i, j],
        d_k,
        HERE,
        (step,),
        relation="rank",
        assumptions=conditions,
        note={
            "en": "Raw scores only: no projection bias, RoPE, additive bias or softcap.",
            "ja": "生のスコアに限る:射影のバイアス、RoPE、加算バイアス、softcap がない場合。",
        },
        symbols={k: INPUTS[k] for k in ("Q", "K", "S")},
    )
