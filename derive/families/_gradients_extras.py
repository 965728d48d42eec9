"""Gradients of what is added to attention: a learned scale, additive biases, a returned log-sum-exp.

Guarantees: as for the family `gradients`.
Does not: treat biases that are masks (`masks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sympy import exp, log

from derive.assumptions import Defined
from derive.catalogue import Claim
from derive.families._attention import (
    INPUTS,
    ROOT,
    Attention,
    a,
    b,
    d_k,
    derivation,
    i,
    j,
    l,
    m,
    n,
    place,
    scale,
)
from derive.language import Diff, array, total
from derive.source import HERE

_CHAIN = ("Chain rule, with the gradient found before.", "連鎖律。先に求めた勾配を使う。")
_CONTRACT = ("The delta picks one row.", "デルタが1つの行を取り出す。")
Entry = Callable[[Any, Any], Any]


def extras() -> list[Claim]:
    return [_dscale(), _dbias(), _dbias_keys(), _dbias_queries(), _lse(), _lse_query()]


class _Biased:
    """Cross-attention whose logits are given: weights alpha = softmax(logits), and the gradient of the logits."""

    def __init__(self, logit: Entry) -> None:
        base = Attention(m)
        self.layer = base
        self.logits = array("S'", n, m)
        self.sizes = base.sizes
        scores = base.defined[0]
        self.defined = (
            scores,
            Defined(self.logits, (i, j), logit(i, j)),
            *base.defined[2:],
            *base.backward,
        )


def _dscale() -> Claim:
    base = Attention(m)
    one = _Biased(lambda x, y: scale * base.S[x, y])
    return derivation(
        "gradients.dscale",
        ("Gradient of a learned scale: Σ dS'∘S", "学習されるスケールの勾配:Σ dS'∘S"),
        (
            Diff(base.loss, scale),
            total(total(base.dscaled[i, j] * Diff(one.logits[i, j], scale), j, m), i, n),
            total(total(base.dscaled[i, j] * base.S[i, j], j, m), i, n),
        ),
        assumptions=(*one.sizes, *one.defined),
        source=HERE,
        notes=[_CHAIN, ("Derivative of a scaled score.", "スケール後スコアの微分。")],
        symbols={"tau": "(1,), the scale", "S": INPUTS["S"]},
    )


def _bias_claim(name: str, title: tuple[str, str], bias: Any, at: Entry, free: Any, rhs: Callable[[Any], Any]) -> Claim:
    base = Attention(m)
    one = _Biased(lambda x, y: base.S[x, y] / ROOT + at(x, y))
    entry = bias[a, b] if len(bias.shape) == 2 else bias[a]
    middle = total(total(base.dscaled[i, j] * Diff(at(i, j), entry), j, m), i, n)
    return derivation(
        f"gradients.{name}",
        title,
        (Diff(base.loss, entry), middle, rhs(base)),
        assumptions=(*one.sizes, *place(*free), *one.defined),
        source=HERE,
        notes=[_CHAIN, _CONTRACT],
        symbols={"B": "an additive bias of the scaled scores"},
    )


def _dbias() -> Claim:
    bias = array("B", n, m)
    return _bias_claim(
        "dbias",
        ("Gradient of an additive bias: dS'", "加算バイアスの勾配:dS'"),
        bias,
        lambda x, y: bias[x, y],
        ((a, n), (b, m)),
        lambda base: base.dscaled[a, b],
    )


def _dbias_keys() -> Claim:
    bias = array("B", m)
    return _bias_claim(
        "dbias_keys",
        (
            "Gradient of a bias per key, broadcast over queries: column sums of dS'",
            "キーごとのバイアスの勾配:dS' の列和",
        ),
        bias,
        lambda x, y: bias[y],
        ((a, m),),
        lambda base: total(base.dscaled[i, a], i, n),
    )


def _dbias_queries() -> Claim:
    bias = array("B", n)
    return _bias_claim(
        "dbias_queries",
        ("Gradient of a bias per query, broadcast over keys: zero", "クエリごとのバイアスの勾配:0"),
        bias,
        lambda x, y: bias[x],
        ((a, n),),
        lambda base: 0,
    )


def _lse_parts() -> tuple[Attention, Any, Any, Any]:
    layer = Attention(m)
    incoming = array("dlse", n)
    lse = log(total(exp(layer.scaled[i, l]), l, m))
    loss = layer.loss + total(incoming[i] * lse, i, n)
    return layer, incoming, lse, loss


def _lse() -> Claim:
    layer, incoming, _, loss = _lse_parts()
    mean = total(layer.alpha[a, l] * layer.dalpha[a, l], l, m)
    return derivation(
        "gradients.lse",
        (
            "A returned log-sum-exp adds its gradient to the row: dS' = α∘(dα − rowsum(α∘dα) + dlse)",
            "log-sum-exp も返す場合:dS' = α∘(dα − rowsum(α∘dα) + dlse)",
        ),
        (
            Diff(loss, layer.scaled[a, b]),
            layer.dscaled[a, b] + incoming[a] * layer.alpha[a, b],
            layer.alpha[a, b] * (layer.dalpha[a, b] - (mean - incoming[a])),
        ),
        assumptions=(*layer.sizes, *place((a, n), (b, m)), *layer.defined, *layer.backward),
        source=HERE,
        symbols={"dlse": "(n,), the incoming gradient of the log-sum-exp", "dZ": INPUTS["dZ"]},
        notes=[
            ("The gradient of a log-sum-exp is the softmax.", "log-sum-exp の勾配は softmax である。"),
            ("So a backward pass subtracts dlse from its row term.", "逆伝播では行の項から dlse を引けばよい。"),
        ],
    )


def _lse_query() -> Claim:
    layer, incoming, _, loss = _lse_parts()
    weights = layer.dscaled[a, j] + incoming[a] * layer.alpha[a, j]
    return derivation(
        "gradients.lse_dq",
        ("Gradient of the queries with a returned log-sum-exp", "log-sum-exp も返す場合のクエリの勾配"),
        (Diff(loss, layer.Q[a, b]), total(weights * layer.K[j, b], j, m) / ROOT),
        assumptions=(*layer.sizes, *place((a, n), (b, d_k)), *layer.defined, *layer.backward),
        source=HERE,
        premises=("gradients.lse",),
    )
