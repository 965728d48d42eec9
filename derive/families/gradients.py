"""The backward pass of attention, for all sizes: every gradient step by step, and end to end with softmax opened.

Guarantees: gradients of L = Σ dZ ∘ Z for any incoming gradient dZ that doesn't depend on the inputs, so they are the
vector–Jacobian products; double backward differentiates them once more along a direction U.
Does not: hold with dropout or an empty row. The scale is 1/√d_k; the gradient of a learned scale is a claim of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sympy import KroneckerDelta, exp, log

from derive.assumptions import AtLeast, Defined
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
    f,
    i,
    j,
    l,
    m,
    n,
    opened,
    p,
    place,
    r,
    s,
    scale,
)
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
        *_opened_inputs(),
        *_opened_projections(),
        _dscale(),
        _dbias(),
        _dbias_keys(),
        _dbias_queries(),
        _lse(),
        _lse_query(),
        *_double_backward(),
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


# ---- end to end, softmax opened

Entry = Callable[[Any, Any], Any]


def _pieces(keys: Any, query: Entry, key: Entry, value: Entry) -> tuple[Any, Entry, Entry]:
    """(loss, alpha, dS') with everything written out."""
    alpha, output = opened(keys, query, key, value)
    loss = total(total(dZ[i, f] * output(i, f), f, d_v), i, n)

    def dalpha(row: Any, column: Any) -> Any:
        return total(dZ[row, f] * value(column, f), f, d_v)

    def dscaled(row: Any, column: Any) -> Any:
        mean = total(alpha(row, r) * dalpha(row, r), r, keys)
        return alpha(row, column) * (dalpha(row, column) - mean)

    return loss, alpha, dscaled


def _end_to_end(name: str, en: str, ja: str, chain: tuple[Any, ...], sizes: Any, free: Any) -> Claim:
    return derivation(
        f"gradients.{name}",
        (f"{en}, softmax opened", f"{ja}(softmax を展開して直接)"),
        chain,
        assumptions=(*sizes, *place(*free)),
        source=HERE,
        note=(
            "End to end from the definition of the loss, with nothing abbreviated.",
            "略記なしで、損失の定義から直接示す。",
        ),
    )


def _opened_inputs() -> list[Claim]:
    layer = Attention(m)
    loss, alpha, dscaled = _pieces(
        m, lambda x, y: layer.Q[x, y], lambda x, y: layer.K[x, y], lambda x, y: layer.V[x, y]
    )
    return [
        _end_to_end(
            "dv_opened",
            "Gradient of the values",
            "バリューの勾配",
            (Diff(loss, layer.V[a, b]), total(alpha(i, a) * dZ[i, b], i, n)),
            layer.sizes,
            ((a, m), (b, d_v)),
        ),
        _end_to_end(
            "dq_opened",
            "Gradient of the queries",
            "クエリの勾配",
            (Diff(loss, layer.Q[a, b]), total(dscaled(a, j) * layer.K[j, b], j, m) / ROOT),
            layer.sizes,
            ((a, n), (b, d_k)),
        ),
        _end_to_end(
            "dk_opened",
            "Gradient of the keys",
            "キーの勾配",
            (Diff(loss, layer.K[a, b]), total(dscaled(i, a) * layer.Q[i, b], i, n) / ROOT),
            layer.sizes,
            ((a, m), (b, d_k)),
        ),
    ]


def _opened_projections() -> list[Claim]:
    def projected(weight: Any) -> Entry:
        return lambda row, channel: total(X[row, p] * weight[p, channel], p, d_model)

    query, key, value = projected(W_Q), projected(W_K), projected(W_V)
    loss, alpha, dscaled = _pieces(n, query, key, value)
    sizes = (AtLeast(n, 1), AtLeast(d_k, 1))

    def dquery(row: Any, channel: Any) -> Any:
        return total(dscaled(row, j) * key(j, channel), j, n) / ROOT

    def dkey(column: Any, channel: Any) -> Any:
        return total(dscaled(i, column) * query(i, channel), i, n) / ROOT

    def dvalue(column: Any, channel: Any) -> Any:
        return total(alpha(i, column) * dZ[i, channel], i, n)

    dx = (
        total(dquery(a, s) * W_Q[b, s], s, d_k)
        + total(dkey(a, s) * W_K[b, s], s, d_k)
        + total(dvalue(a, s) * W_V[b, s], s, d_v)
    )
    table = [
        ("dwq_opened", "Gradient of W^Q", "W^Q の勾配", W_Q, total(X[s, a] * dquery(s, b), s, n), (d_model, d_k)),
        ("dwk_opened", "Gradient of W^K", "W^K の勾配", W_K, total(X[s, a] * dkey(s, b), s, n), (d_model, d_k)),
        ("dwv_opened", "Gradient of W^V", "W^V の勾配", W_V, total(X[s, a] * dvalue(s, b), s, n), (d_model, d_v)),
        ("dx_opened", "Gradient of the tokens, all paths", "トークンの勾配(全経路)", X, dx, (n, d_model)),
    ]
    return [
        _end_to_end(name, en, ja, (Diff(loss, at[a, b]), rhs), sizes, ((a, rows), (b, columns)))
        for name, en, ja, at, rhs, (rows, columns) in table
    ]


# ---- scale, biases, log-sum-exp


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


# ---- double backward


def _double_backward() -> list[Claim]:
    """Derivatives of ⟨dQ, U⟩: the Hessian–vector products of L that start from the queries."""
    layer = Attention(m)
    direction = array("U", n, d_k)
    tangent, slope, turn = array("T", n, m), array("A", n, m), array("H", n, m)
    mean = array("rho", n)
    extra = (
        Defined(tangent, (i, j), total(direction[i, c] * layer.K[j, c], c, d_k) / ROOT),
        Defined(
            slope,
            (i, j),
            layer.alpha[i, j] * (tangent[i, j] - total(layer.alpha[i, l] * tangent[i, l], l, m)),
        ),
        Defined(mean, (i,), total(layer.alpha[i, l] * layer.dalpha[i, l], l, m)),
        Defined(
            turn,
            (i, j),
            slope[i, j] * (layer.dalpha[i, j] - mean[i])
            - layer.alpha[i, j] * total(slope[i, l] * layer.dalpha[i, l], l, m),
        ),
    )
    dq = total(layer.dscaled[i, j] * layer.K[j, c], j, m) / ROOT
    along = total(total(dq * direction[i, c], c, d_k), i, n)
    table: list[tuple[str, str, str, Any, Any, Any]] = [
        ("query", "queries", "クエリ", layer.Q, total(turn[a, j] * layer.K[j, b], j, m) / ROOT, (n, d_k)),
        (
            "key",
            "keys",
            "キー",
            layer.K,
            total(turn[i, a] * layer.Q[i, b], i, n) / ROOT + total(layer.dscaled[i, a] * direction[i, b], i, n) / ROOT,
            (m, d_k),
        ),
        ("value", "values", "バリュー", layer.V, total(slope[i, a] * dZ[i, b], i, n), (m, d_v)),
        (
            "incoming",
            "incoming gradient",
            "入ってくる勾配",
            dZ,
            total(slope[a, j] * layer.V[j, b], j, m),
            (n, d_v),
        ),
    ]
    return [
        derivation(
            f"gradients.double_backward_{name}",
            (f"Double backward of the queries' gradient: by the {en}", f"クエリの勾配の二階逆伝播:{ja}による微分"),
            (Diff(along, by[a, b]), rhs),
            assumptions=(
                *layer.sizes,
                *place((a, rows), (b, columns)),
                *layer.defined,
                *layer.backward,
                *extra,
            ),
            source=HERE,
            symbols={
                "U": "(n, d_k), a direction",
                "T": "U Kᵀ/√d_k, the scores' change along U",
                "A": "α∘(T − rowsum(α∘T)), the weights' change along U",
                "rho": "rowsum(α∘dα)",
                "H": "A∘(dα − rho) − α∘rowsum(A∘dα), the change of dS' along U",
            },
        )
        for name, en, ja, by, rhs, (rows, columns) in table
    ]
