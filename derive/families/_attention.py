"""The vocabulary of the attention families: sizes, arrays, and attention written index by index.

Guarantees: symbols are as in the source text (n, d_k, d_v, d_model; X, W^Q, Q, K, V, S, S', alpha, Z), one object each.
Does not: hold claims.

Cross-attention has n queries and m keys; self-attention has n of both. A prime is scaling: S' = S/√d_k.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sympy import exp, sqrt, sympify

from derive.assumptions import AtLeast, Defined, InRange
from derive.catalogue import Claim
from derive.language import array, index, size, total
from derive.source import Source
from derive.step import Step

n, m, d_k, d_v, d_model = (size(x) for x in ("n", "m", "d_k", "d_v", "d_model"))
i, j, l, r, s = (index(x) for x in "ijlrs")
a, b, c, e, f, g = (index(x) for x in "abcefg")
p, q, t, u = (index(x) for x in "pqtu")

X = array("X", n, d_model)
W_Q, W_K, W_V = array("W_Q", d_model, d_k), array("W_K", d_model, d_k), array("W_V", d_model, d_v)
dZ = array("dZ", n, d_v)
ROOT = sqrt(d_k)

Entry = Callable[..., Any]


def place(*pairs: tuple[Any, Any]) -> tuple[InRange, ...]:
    """Free indices with the sizes they run over: 0 ≤ index ≤ size − 1."""
    return tuple(InRange(ix, 0, count - 1) for ix, count in pairs)


def dot(left: Entry, right: Entry, binder: Any, count: Any) -> Any:
    """Σ left(binder) · right(binder)."""
    return total(left(binder) * right(binder), binder, count)


def softmax(score: Entry, row: Any, key: Any, keys: Any, binder: Any = l) -> Any:
    """exp(score[row, key]) / Σ_binder exp(score[row, binder])."""
    return exp(score(row, key)) / total(exp(score(row, binder)), binder, keys)


class Attention:
    """One attention layer by definitions, so that a statement can name S', alpha, Z, and a checker can open them.

    keys: their number, n for self-attention. Arrays Q, K, V are inputs, or defined from one X when `from_x`.
    `defined` are the definitions up to the output; `backward` those of the gradients dalpha, dS', dS of the loss
    L = Σ_ic dZ[i, c] Z[i, c], whose derivative by Z is the incoming gradient dZ.
    """

    def __init__(self, keys: Any = m, *, from_x: bool = False) -> None:
        self.keys = keys
        self.Q, self.K, self.V = array("Q", n, d_k), array("K", keys, d_k), array("V", keys, d_v)
        self.S, self.scaled = array("S", n, keys), array("S'", n, keys)
        self.alpha, self.Z = array("alpha", n, keys), array("Z", n, d_v)
        self.dalpha, self.dscaled, self.dS = array("dalpha", n, keys), array("dS'", n, keys), array("dS", n, keys)
        self.sizes: tuple[Any, ...] = (AtLeast(keys, 1), AtLeast(d_k, 1))
        projections = (
            Defined(self.Q, (i, c), total(X[i, p] * W_Q[p, c], p, d_model)),
            Defined(self.K, (j, c), total(X[j, p] * W_K[p, c], p, d_model)),
            Defined(self.V, (j, c), total(X[j, p] * W_V[p, c], p, d_model)),
        )
        self.defined: tuple[Any, ...] = (
            *(projections if from_x else ()),
            Defined(self.S, (i, j), total(self.Q[i, c] * self.K[j, c], c, d_k)),
            Defined(self.scaled, (i, j), self.S[i, j] / ROOT),
            Defined(self.alpha, (i, j), softmax(lambda x, y: self.scaled[x, y], i, j, keys)),
            Defined(self.Z, (i, c), total(self.alpha[i, j] * self.V[j, c], j, keys)),
        )
        self.backward: tuple[Any, ...] = (
            Defined(self.dalpha, (i, j), total(dZ[i, c] * self.V[j, c], c, d_v)),
            Defined(self.dscaled, (i, j), self.softmax_gradient(i, j)),
            Defined(self.dS, (i, j), self.dscaled[i, j] / ROOT),
        )

    @property
    def loss(self) -> Any:
        """L = Σ_i Σ_c dZ[i, c] Z[i, c]."""
        return total(total(dZ[i, c] * self.Z[i, c], c, d_v), i, n)

    def softmax_gradient(self, row: Any, key: Any) -> Any:
        """alpha (dalpha − Σ_l alpha dalpha), entry by entry."""
        mean = total(self.alpha[row, l] * self.dalpha[row, l], l, self.keys)
        return self.alpha[row, key] * (self.dalpha[row, key] - mean)


def opened(keys: Any, query: Entry, key: Entry, value: Entry) -> tuple[Entry, Entry]:
    """(alpha, Z) as explicit functions of index, with nothing abbreviated."""

    def score(row: Any, column: Any) -> Any:
        return dot(lambda x: query(row, x), lambda x: key(column, x), c, d_k) / ROOT

    def alpha(row: Any, column: Any) -> Any:
        return softmax(score, row, column, keys)

    def output(row: Any, channel: Any) -> Any:
        # One common denominator a row, as the row is computed.
        weighted = total(exp(score(row, j)) * value(j, channel), j, keys)
        return weighted / total(exp(score(row, l)), l, keys)

    return alpha, output


def derivation(
    claim_id: str,
    title: tuple[str, str],
    chain: Iterable[Any],
    *,
    source: Source,
    assumptions: Iterable[Any] = (),
    notes: Iterable[tuple[str, str]] = (),
    premises: tuple[str, ...] = (),
    data: Mapping[str, Any] | None = None,
    note: tuple[str, str] | None = None,
    symbols: Mapping[str, str] | None = None,
    observable: str | None = None,
) -> Claim:
    """A claim whose chain of expressions is equal link by link, each link a step of the rule "normal-form".

    notes: one (en, ja) a step.
    """
    links = tuple(sympify(link, strict=True) for link in chain)
    conditions = tuple(assumptions)
    words = list(notes) + [("", "")] * len(links)
    steps = tuple(
        Step(
            before,
            after,
            "normal-form",
            assumptions=conditions,
            premises=premises,
            data=dict(data or {}),
            note={"en": words[k][0], "ja": words[k][1]} if words[k][0] else {},
        )
        for k, (before, after) in enumerate(itertools.pairwise(links))
    )
    return Claim(
        claim_id,
        {"en": title[0], "ja": title[1]},
        links[0],
        links[-1],
        source,
        steps,
        assumptions=conditions,
        note={"en": note[0], "ja": note[1]} if note else {},
        symbols=symbols or {},
        observable=observable,
    )


INPUTS = {
    "X": "(n, d_model), the tokens",
    "W_Q": "(d_model, d_k)",
    "W_K": "(d_model, d_k)",
    "W_V": "(d_model, d_v)",
    "Q": "(n, d_k), queries",
    "K": "(m, d_k), keys",
    "V": "(m, d_v), values",
    "S": "(n, m), scores",
    "S'": "(n, m), scaled scores",
    "alpha": "(n, m), weights",
    "Z": "(n, d_v), output",
    "dZ": "(n, d_v), the incoming gradient",
}
# A scale that is learned: an array of one entry, since derivatives are by entries of arrays.
scale = array("tau", 1)[0]
