"""Double backward: gradients differentiated once more, along a direction U (Hessian–vector products).

Guarantees: for all sizes, with softmax's second derivative in closed form.
Does not: repeat what the symmetry of second derivatives gives: ⟨dK, U⟩ by the queries is the transpose of ⟨dQ, U⟩ by
the keys, and so on. The gradient by the values is linear in them, so it has no second derivative by them.
"""

from __future__ import annotations

from typing import Any

from derive.assumptions import Defined
from derive.catalogue import Claim
from derive.families._attention import (
    ROOT,
    Attention,
    a,
    b,
    c,
    d_k,
    d_v,
    derivation,
    dZ,
    i,
    j,
    l,
    m,
    n,
    place,
)
from derive.language import Diff, array, total
from derive.source import HERE


def double_backward() -> list[Claim]:
    """Derivatives of ⟨dQ, U⟩ by all inputs, and those of ⟨dK, U⟩ that their symmetry doesn't give."""
    layer = Attention(m)
    U, W = array("U", n, d_k), array("U", m, d_k)
    gradient_q = total(layer.dscaled[i, j] * layer.K[j, c], j, m) / ROOT
    gradient_k = total(layer.dscaled[i, j] * layer.Q[i, c], i, n) / ROOT
    queries = _Along(layer, total(U[i, c] * layer.K[j, c], c, d_k) / ROOT)
    keys = _Along(layer, total(layer.Q[i, c] * W[j, c], c, d_k) / ROOT)
    along_q = total(total(gradient_q * U[i, c], c, d_k), i, n)
    along_k = total(total(gradient_k * W[j, c], c, d_k), j, m)
    held = total(layer.dscaled[i, a] * U[i, b], i, n) / ROOT
    return [
        queries.claim("query", along_q, layer.Q, queries.times_keys(a, b), (n, d_k)),
        queries.claim("key", along_q, layer.K, queries.times_queries(a, b) + held, (m, d_k)),
        queries.claim("value", along_q, layer.V, queries.times_incoming(a, b), (m, d_v)),
        queries.claim("incoming", along_q, dZ, total(queries.slope[a, j] * layer.V[j, b], j, m), (n, d_v)),
        keys.claim("keys_key", along_k, layer.K, keys.times_queries(a, b), (m, d_k)),
        keys.claim("keys_value", along_k, layer.V, keys.times_incoming(a, b), (m, d_v)),
    ]


_WORDS = {
    "query": ("Double backward of dQ: by the queries", "dQ の二階逆伝播:クエリによる微分"),
    "key": ("Double backward of dQ: by the keys", "dQ の二階逆伝播:キーによる微分"),
    "value": ("Double backward of dQ: by the values", "dQ の二階逆伝播:バリューによる微分"),
    "incoming": ("Double backward of dQ: by the incoming gradient", "dQ の二階逆伝播:入ってくる勾配による微分"),
    "keys_key": ("Double backward of dK: by the keys", "dK の二階逆伝播:キーによる微分"),
    "keys_value": ("Double backward of dK: by the values", "dK の二階逆伝播:バリューによる微分"),
}


class _Along:
    """What a change T of the scaled scores makes of the weights (A) and of their gradient dS' (H)."""

    def __init__(self, layer: Attention, change: Any) -> None:
        self.layer = layer
        self.slope, self.turn = array("A", n, m), array("H", n, m)
        tangent, mean = array("T", n, m), array("rho", n)
        slope, turn = self.slope, self.turn
        self.defined = (
            Defined(tangent, (i, j), change),
            Defined(
                slope, (i, j), layer.alpha[i, j] * (tangent[i, j] - total(layer.alpha[i, l] * tangent[i, l], l, m))
            ),
            Defined(mean, (i,), total(layer.alpha[i, l] * layer.dalpha[i, l], l, m)),
            Defined(
                turn,
                (i, j),
                slope[i, j] * (layer.dalpha[i, j] - mean[i])
                - layer.alpha[i, j] * total(slope[i, l] * layer.dalpha[i, l], l, m),
            ),
        )

    def times_keys(self, row: Any, channel: Any) -> Any:
        return total(self.turn[row, j] * self.layer.K[j, channel], j, m) / ROOT

    def times_queries(self, column: Any, channel: Any) -> Any:
        return total(self.turn[i, column] * self.layer.Q[i, channel], i, n) / ROOT

    def times_incoming(self, column: Any, channel: Any) -> Any:
        return total(self.slope[i, column] * dZ[i, channel], i, n)

    def claim(self, name: str, along: Any, by: Any, rhs: Any, shape: tuple[Any, Any]) -> Claim:
        return derivation(
            f"gradients.double_backward_{name}",
            _WORDS[name],
            (Diff(along, by[a, b]), rhs),
            assumptions=(
                *self.layer.sizes,
                *place((a, shape[0]), (b, shape[1])),
                *self.layer.defined,
                *self.layer.backward,
                *self.defined,
            ),
            source=HERE,
            symbols={
                "U": "a direction, of the shape of Q (of K for dK)",
                "T": "the change of the scaled scores along U: U Kᵀ/√d_k, or Q Uᵀ/√d_k for dK",
                "A": "α∘(T − rowsum(α∘T)), the weights' change along U",
                "rho": "rowsum(α∘dα)",
                "H": "A∘(dα − rho) − α∘rowsum(A∘dα), the change of dS' along U",
            },
        )
