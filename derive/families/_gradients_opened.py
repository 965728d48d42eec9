"""The gradients end to end: from a loss with softmax written out to the formula, in one step each.

Guarantees: nothing is abbreviated, so these rest on no other claim.
Does not: explain; the steps are in `derive.families.gradients`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from derive.assumptions import AtLeast
from derive.catalogue import Claim
from derive.families._attention import (
    ROOT,
    W_K,
    W_Q,
    W_V,
    Attention,
    X,
    a,
    b,
    d_k,
    d_model,
    d_v,
    derivation,
    dZ,
    f,
    i,
    j,
    m,
    n,
    opened,
    p,
    place,
    r,
    s,
)
from derive.language import Diff, total
from derive.source import HERE

Entry = Callable[[Any, Any], Any]


def end_to_end() -> list[Claim]:
    return [*_opened_inputs(), *_opened_projections()]


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
