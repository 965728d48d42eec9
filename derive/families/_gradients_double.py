"""Double backward: the queries' gradient differentiated once more, along a direction U.

Guarantees: for all sizes, with softmax's second derivative in closed form.
Does not: list the mixed terms that start from keys or values; they follow by the symmetry of second derivatives.
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
