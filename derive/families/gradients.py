"""The backward pass of attention, for all sizes: every gradient step by step, and end to end with softmax opened.

Guarantees: gradients of L = Σ dZ ∘ Z for any incoming gradient dZ that doesn't depend on the inputs, so they are the
vector–Jacobian products; double backward differentiates them once more along a direction U.
Does not: hold with dropout or an empty row. The scale is 1/√d_k; the gradient of a learned scale is a claim of its own.
"""

from __future__ import annotations

from typing import Any

from sympy import KroneckerDelta

from derive.assumptions import Defined
from derive.catalogue import Claim
from derive.families._attention import (
    INPUTS,
    ROOT,
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
    dZ,
    i,
    j,
    m,
    n,
    place,
)
from derive.families._gradients_double import double_backward
from derive.families._gradients_extras import extras
from derive.families._gradients_opened import end_to_end
from derive.language import Diff, array, total
from derive.source import DAO, HERE

_BACKWARD = DAO.at("appendix B.2")
_CHAIN = ("Chain rule, with the gradient found before.", "連鎖律。先に求めた勾配を使う。")
_OPEN = ("The abbreviation opened.", "略記を定義に戻す。")
_CONTRACT = ("The delta picks one row.", "デルタが1つの行を取り出す。")


def claims() -> list[Claim]:
    return [
        _dv(),
        _dalpha(),
        _dscaled(),
        _dscores(),
        _row_term(),
        _dq(),
        _dk(),
        _dw("q", W_Q, d_k),
        _dw("k", W_K, d_k),
        _dw("v", W_V, d_v),
        _dx(),
        *end_to_end(),
        *extras(),
        *double_backward(),
    ]


def _step_by_step(
    name: str,
    title: tuple[str, str],
    layer: Attention,
    chain: tuple[Any, ...],
    free: tuple[Any, ...],
    notes: list[tuple[str, str]],
    premises: tuple[str, ...] = (),
) -> Claim:
    return derivation(
        f"gradients.{name}",
        title,
        chain,
        assumptions=(*layer.sizes, *place(*free), *layer.defined, *layer.backward),
        source=_BACKWARD,
        notes=notes,
        premises=premises,
        symbols={k: INPUTS[k] for k in ("Q", "K", "V", "alpha", "Z", "dZ")},
    )


# ---- step by step


def _dv() -> Claim:
    layer = Attention(m)
    return _step_by_step(
        "dv",
        ("Gradient of the values: dV = αᵀ dZ", "バリューの勾配:dV = αᵀ dZ"),
        layer,
        (
            Diff(layer.loss, layer.V[a, b]),
            total(total(dZ[i, c] * Diff(layer.Z[i, c], layer.V[a, b]), c, d_v), i, n),
            total(layer.alpha[i, a] * dZ[i, b], i, n),
        ),
        ((a, m), (b, d_v)),
        [_CHAIN, _CONTRACT],
        ("output.value_jacobian",),
    )


def _dalpha() -> Claim:
    layer = Attention(m)
    return _step_by_step(
        "dalpha",
        ("Gradient of the weights: dα = dZ Vᵀ", "重みの勾配:dα = dZ Vᵀ"),
        layer,
        (
            Diff(layer.loss, layer.alpha[a, b]),
            total(dZ[a, c] * layer.V[b, c], c, d_v),
            layer.dalpha[a, b],
        ),
        ((a, n), (b, m)),
        [_CHAIN, _OPEN],
    )


def _dscaled() -> Claim:
    layer = Attention(m)
    return _step_by_step(
        "dscaled",
        (
            "Gradient of the scaled scores: dS' = α∘(dα − rowsum(α∘dα))",
            "スケール後スコアの勾配:dS' = α∘(dα − rowsum(α∘dα))",
        ),
        layer,
        (
            Diff(layer.loss, layer.scaled[a, b]),
            total(total(layer.dalpha[i, j] * Diff(layer.alpha[i, j], layer.scaled[a, b]), j, m), i, n),
            total(layer.dalpha[a, j] * layer.alpha[a, j] * (KroneckerDelta(j, b) - layer.alpha[a, b]), j, m),
            layer.softmax_gradient(a, b),
        ),
        ((a, n), (b, m)),
        [_CHAIN, ("The Jacobian of softmax.", "softmax のヤコビ行列。"), ("Sums collected.", "和をまとめる。")],
    )


def _dscores() -> Claim:
    layer = Attention(m)
    return _step_by_step(
        "dscores",
        ("Gradient of the scores: dS = dS'/√d_k", "スコアの勾配:dS = dS'/√d_k"),
        layer,
        (
            Diff(layer.loss, layer.S[a, b]),
            total(total(layer.dscaled[i, j] * Diff(layer.scaled[i, j], layer.S[a, b]), j, m), i, n),
            layer.dscaled[a, b] / ROOT,
            layer.softmax_gradient(a, b) / ROOT,
        ),
        ((a, n), (b, m)),
        [_CHAIN, _CONTRACT, _OPEN],
        ("gradients.dscaled",),
    )


def _row_term() -> Claim:
    layer = Attention(m)
    return _step_by_step(
        "row_term",
        ("rowsum(α∘dα) = rowsum(dZ∘Z), without the weights", "rowsum(α∘dα) = rowsum(dZ∘Z):重みなしで計算できる"),
        layer,
        (
            total(layer.alpha[i, j] * layer.dalpha[i, j], j, m),
            total(layer.alpha[i, j] * total(dZ[i, c] * layer.V[j, c], c, d_v), j, m),
            total(dZ[i, c] * layer.Z[i, c], c, d_v),
        ),
        ((i, n),),
        [_OPEN, ("The sums over keys and channels exchange.", "キーの和とチャネルの和を交換する。")],
    )


def _dq() -> Claim:
    layer = Attention(m)
    jacobian = Diff(layer.scaled[i, j], layer.Q[a, b])
    return _step_by_step(
        "dq",
        ("Gradient of the queries: dQ = dS' K/√d_k", "クエリの勾配:dQ = dS' K/√d_k"),
        layer,
        (
            Diff(layer.loss, layer.Q[a, b]),
            total(total(layer.dscaled[i, j] * jacobian, j, m), i, n),
            total(total(layer.dscaled[i, j] * KroneckerDelta(i, a) * layer.K[j, b] / ROOT, j, m), i, n),
            total(layer.dscaled[a, j] * layer.K[j, b], j, m) / ROOT,
            total(layer.softmax_gradient(a, j) * layer.K[j, b], j, m) / ROOT,
        ),
        ((a, n), (b, d_k)),
        [_CHAIN, ("Derivative of a scaled score.", "スケール後スコアの微分。"), _CONTRACT, _OPEN],
        ("gradients.dscaled", "scaling.jacobian"),
    )


def _dk() -> Claim:
    layer = Attention(m)
    jacobian = Diff(layer.scaled[i, j], layer.K[a, b])
    return _step_by_step(
        "dk",
        ("Gradient of the keys: dK = dS'ᵀ Q/√d_k", "キーの勾配:dK = dS'ᵀ Q/√d_k"),
        layer,
        (
            Diff(layer.loss, layer.K[a, b]),
            total(total(layer.dscaled[i, j] * jacobian, j, m), i, n),
            total(total(layer.dscaled[i, j] * KroneckerDelta(j, a) * layer.Q[i, b] / ROOT, j, m), i, n),
            total(layer.dscaled[i, a] * layer.Q[i, b], i, n) / ROOT,
            total(layer.softmax_gradient(i, a) * layer.Q[i, b], i, n) / ROOT,
        ),
        ((a, m), (b, d_k)),
        [_CHAIN, ("Derivative of a scaled score.", "スケール後スコアの微分。"), _CONTRACT, _OPEN],
        ("gradients.dscaled",),
    )


class _Projected:
    """Self-attention from one X, with dQ, dK, dV as abbreviations."""

    def __init__(self) -> None:
        self.layer = Attention(n, from_x=True)
        one = self.layer
        self.dQ, self.dK, self.dV = array("dQ", n, d_k), array("dK", n, d_k), array("dV", n, d_v)
        self.defined = (
            *one.defined,
            *one.backward,
            Defined(self.dQ, (i, c), total(one.dscaled[i, j] * one.K[j, c], j, n) / ROOT),
            Defined(self.dK, (j, c), total(one.dscaled[i, j] * one.Q[i, c], i, n) / ROOT),
            Defined(self.dV, (j, c), total(one.alpha[i, j] * dZ[i, c], i, n)),
        )

    def pair(self, which: str) -> tuple[Any, Any]:
        return {"q": (self.layer.Q, self.dQ), "k": (self.layer.K, self.dK), "v": (self.layer.V, self.dV)}[which]


def _dw(which: str, weight: Any, width: Any) -> Claim:
    one = _Projected()
    array_, gradient = one.pair(which)
    letter = which.upper()
    jacobian = Diff(array_[i, c], weight[a, b])
    return derivation(
        f"gradients.dw{which}",
        (f"Gradient of W^{letter}: Xᵀ d{letter}", f"W^{letter} の勾配:Xᵀ d{letter}"),
        (
            Diff(one.layer.loss, weight[a, b]),
            total(total(gradient[i, c] * jacobian, c, width), i, n),
            total(total(gradient[i, c] * X[i, a] * KroneckerDelta(c, b), c, width), i, n),
            total(X[i, a] * gradient[i, b], i, n),
        ),
        assumptions=(*one.layer.sizes, *place((a, d_model), (b, width)), *one.defined),
        source=_BACKWARD,
        premises=("gradients.dv",) if which == "v" else (f"gradients.d{which}",),
        notes=[_CHAIN, ("Derivative of a projection.", "射影の微分。"), _CONTRACT],
        symbols={k: INPUTS[k] for k in ("X", "W_Q", "W_K", "W_V", "dZ")},
    )


def _dx() -> Claim:
    one = _Projected()
    paths = [(*one.pair(k), w, d) for k, w, d in (("q", W_Q, d_k), ("k", W_K, d_k), ("v", W_V, d_v))]
    return derivation(
        "gradients.dx",
        (
            "Gradient of the tokens, all paths: dQ (W^Q)ᵀ + dK (W^K)ᵀ + dV (W^V)ᵀ",
            "トークンの勾配(全経路):dQ (W^Q)ᵀ + dK (W^K)ᵀ + dV (W^V)ᵀ",
        ),
        (
            Diff(one.layer.loss, X[a, b]),
            _added(total(total(g[i, c] * Diff(y[i, c], X[a, b]), c, d), i, n) for y, g, _, d in paths),
            _added(total(total(g[i, c] * KroneckerDelta(i, a) * w[b, c], c, d), i, n) for _, g, w, d in paths),
            _added(total(g[a, c] * w[b, c], c, d) for _, g, w, d in paths),
        ),
        assumptions=(*one.layer.sizes, *place((a, n), (b, d_model)), *one.defined),
        source=HERE,
        premises=("gradients.dq", "gradients.dk", "gradients.dv"),
        notes=[
            ("Chain rule through queries, keys and values.", "クエリ・キー・バリューを通る連鎖律。"),
            ("Derivative of a projection.", "射影の微分。"),
            _CONTRACT,
        ],
        symbols={k: INPUTS[k] for k in ("X", "W_Q", "W_K", "W_V", "dZ")},
    )


def _added(terms: Any) -> Any:
    result: Any = 0
    for term in terms:
        result = result + term
    return result
