"""Queries, keys and values as projections of one sequence X.

Guarantees: for all n, d_model, d_k, d_v. "Matrix form" means the matrix product's row i, picked by a unit vector.
Does not: speak of a bias in the projections.
"""

from __future__ import annotations

from typing import Any

from sympy import KroneckerDelta

from derive.assumptions import Defined
from derive.catalogue import Claim
from derive.families._attention import (
    INPUTS,
    W_K,
    W_Q,
    W_V,
    Attention,
    X,
    a,
    b,
    c,
    d_k,
    d_model,
    d_v,
    derivation,
    i,
    l,
    n,
    opened,
    p,
    place,
)
from derive.language import Diff, array, total
from derive.source import VASWANI

_SOURCE = VASWANI.at("section 3.2.2")
_NAMES = {
    "query": ("Q", W_Q, d_k, "queries", "クエリ"),
    "key": ("K", W_K, d_k, "keys", "キー"),
    "value": ("V", W_V, d_v, "values", "バリュー"),
}


def claims() -> list[Claim]:
    rows = [_row(name, *entry) for name, entry in _NAMES.items()]
    return [*rows, _locality(), _weight(), _self_attention()]


def _row(name: str, letter: str, weight: Any, width: Any, en: str, ja: str) -> Claim:
    product = array(letter, n, width)
    defined = Defined(product, (i, c), total(X[i, p] * weight[p, c], p, d_model))
    picked = total(KroneckerDelta(i, l) * X[l, p], l, n)
    return derivation(
        f"projections.{name}",
        (f"{en.capitalize()}, token by token = row of the matrix product", f"{ja}:トークンごとの射影 = 行列積の行"),
        (
            total(X[i, p] * weight[p, c], p, d_model),
            total(picked * weight[p, c], p, d_model),
            total(KroneckerDelta(i, l) * product[l, c], l, n),
        ),
        assumptions=(*place((i, n), (c, width)), defined),
        source=_SOURCE,
        symbols={k: INPUTS[k] for k in ("X", f"W_{letter}")},
        notes=[
            ("Row i of X is X multiplied by a unit vector.", "X の第 i 行は単位ベクトルとの積である。"),
            ("Σ_l and Σ_p exchange: (eᵢᵀX)W = eᵢᵀ(XW).", "Σ_l と Σ_p を交換する:(eᵢᵀX)W = eᵢᵀ(XW)。"),
        ],
    )


def _locality() -> Claim:
    query = array("Q", n, d_k)
    return derivation(
        "projections.locality",
        ("A query depends on its own token alone", "クエリは自分のトークンだけに依存する"),
        (Diff(query[i, c], X[a, b]), KroneckerDelta(i, a) * W_Q[b, c]),
        assumptions=(
            *place((i, n), (c, d_k), (a, n), (b, d_model)),
            Defined(query, (i, c), total(X[i, p] * W_Q[p, c], p, d_model)),
        ),
        source=_SOURCE,
    )


def _weight() -> Claim:
    query = array("Q", n, d_k)
    return derivation(
        "projections.weight_jacobian",
        ("Derivative of a query by the weights", "クエリの重みによる微分"),
        (Diff(query[i, c], W_Q[a, b]), KroneckerDelta(c, b) * X[i, a]),
        assumptions=(
            *place((i, n), (c, d_k), (a, d_model), (b, d_k)),
            Defined(query, (i, c), total(X[i, p] * W_Q[p, c], p, d_model)),
        ),
        source=_SOURCE,
    )


def _self_attention() -> Claim:
    layer = Attention(n, from_x=True)

    def projected(weight: Any) -> Any:
        return lambda row, channel: total(X[row, p] * weight[p, channel], p, d_model)

    _, output = opened(n, projected(W_Q), projected(W_K), projected(W_V))
    return derivation(
        "projections.self_attention",
        (
            "Self-attention: queries, keys and values all from one X",
            "自己注意:クエリ・キー・バリューをすべて X から作る",
        ),
        (layer.Z[i, c], output(i, c)),
        assumptions=(*layer.sizes, *place((i, n), (c, d_v)), *layer.defined),
        source=VASWANI.at("section 3.2.1, equation 1, and section 3.2.3"),
        symbols={k: INPUTS[k] for k in ("X", "W_Q", "W_K", "W_V", "Z")},
    )
