"""What the families of moment claims share: makers for scores, symbols, and claims of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from derive.assumptions import Assumption, Distinct, FixedArray, RandomEntries
from derive.catalogue import Claim
from derive.language import array, index, scalar, size, total
from derive.moments.laws import Law, mean_variance
from derive.moments.nodes import PowerSum
from derive.source import Source
from derive.step import Relation, Step

SYMBOLS = {
    "d_k": "number of components of a query or key",
    "d_model": "number of components of a token",
    "n": "number of tokens",
    "q": "query, (d_k)",
    "k": "key, (d_k)",
    "Q": "queries, (n, d_k)",
    "K": "keys, (n, d_k)",
    "X": "tokens, (n, d_model)",
    "W_Q": "query weights, (d_model, d_k)",
    "W_K": "key weights, (d_model, d_k)",
    "mu_q": "mean of a component of q",
    "mu_k": "mean of a component of k",
    "sigma_q": "standard deviation of a component of q (of an entry of W_Q where weights are random)",
    "sigma_k": "standard deviation of a component of k (of an entry of W_K where weights are random)",
    "sigma_x": "standard deviation of an entry of X",
    "rho": "correlation of q_c and k_c",
}


n, m, d_k, d_model, h = (size(name) for name in ("n", "m", "d_k", "d_model", "h"))
i, j, l = index("i"), index("j"), index("l")

MU_Q, MU_K, RHO = scalar("mu_q"), scalar("mu_k"), scalar("rho")
SIGMA_Q, SIGMA_K = scalar("sigma_q", positive=True), scalar("sigma_k", positive=True)
SIGMA_X, SIGMA_W = scalar("sigma_x", positive=True), scalar("sigma_w", positive=True)
UNIT = SIGMA_Q**2 * SIGMA_K**2

q, k = array("q", d_k), array("k", d_k)
Q, K = array("Q", n, d_k), array("K", m, d_k)
X = array("X", n, d_model)
W_Q, W_K, W, V_Q, V_K = (array(name, d_model, d_k) for name in ("W_Q", "W_K", "W", "W_Q2", "W_K2"))


def _dot(left: Callable[[Any], Any], right: Callable[[Any], Any]) -> Any:
    c = index("c")
    return total(left(c) * right(c), c, d_k)


# q·k for two vectors.
SCORE = _dot(lambda c: q[c], lambda c: k[c])


def row_score(row: Any, column: Any) -> Any:
    """Entry of QKᵀ for independent queries and keys."""
    return _dot(lambda c: Q[row, c], lambda c: K[column, c])


def _projected(row: Any, weights: Any, name: str) -> Callable[[Any], Any]:
    a = index(name)
    return lambda c: total(X[row, a] * weights[a, c], a, d_model)


def self_score(row: Any, column: Any) -> Any:
    """Entry of (X W_Q)(X W_K)ᵀ."""
    return _dot(_projected(row, W_Q, "a"), _projected(column, W_K, "b"))


def tied_score(row: Any, column: Any) -> Any:
    """Entry of (X W)(X W)ᵀ."""
    return _dot(_projected(row, W, "a"), _projected(column, W, "b"))


def other_head_score(row: Any, column: Any) -> Any:
    """The same entry for a second head, with weights of its own."""
    return _dot(_projected(row, V_Q, "a"), _projected(column, V_K, "b"))


def two_heads(law_x: Law, law: Law) -> tuple[Assumption, ...]:
    """Random tokens and two heads, all four weight matrices independent and of one law."""
    return (RandomEntries((X,), law_x), *(RandomEntries((w,), law) for w in (W_Q, W_K, V_Q, V_K)))


def with_biases(deviation_q: Any, deviation_k: Any) -> tuple[Callable[[Any, Any], Any], tuple[Assumption, ...]]:
    """(score, laws) of (X W_Q + b_Q)(X W_K + b_K)ᵀ with random biases of mean 0."""
    b_q, b_k = array("b_Q", d_k), array("b_K", d_k)

    def score(row: Any, column: Any) -> Any:
        left, right = _projected(row, W_Q, "a"), _projected(column, W_K, "b")
        return _dot(lambda c: left(c) + b_q[c], lambda c: right(c) + b_k[c])

    biases = (
        RandomEntries((b_q,), mean_variance(0, deviation_q**2)),
        RandomEntries((b_k,), mean_variance(0, deviation_k**2)),
    )
    return score, biases


def gram(*rows: Any) -> Any:
    """⟨x_i, x_j⟩ for two rows, Σ_a x_ia x_ja x_la … for more."""
    return PowerSum(X, d_model, *rows)


def products(law_q: Law, law_k: Law) -> tuple[RandomEntries, ...]:
    """Vectors q and k with independent components of these laws."""
    return RandomEntries((q,), law_q), RandomEntries((k,), law_k)


def vectors(mean_q: Any = MU_Q, mean_k: Any = MU_K) -> tuple[RandomEntries, ...]:
    """q and k with independent components, known by mean and variance alone."""
    return products(mean_variance(mean_q, SIGMA_Q**2), mean_variance(mean_k, SIGMA_K**2))


def independent_rows() -> tuple[RandomEntries, ...]:
    """Q and K with independent entries, known by mean and variance alone."""
    return (
        RandomEntries((Q,), mean_variance(MU_Q, SIGMA_Q**2)),
        RandomEntries((K,), mean_variance(MU_K, SIGMA_K**2)),
    )


def fixed_tokens(*laws: Any) -> tuple[Assumption, ...]:
    """X fixed; one law for tied weights W, two for W_Q and W_K."""
    return (FixedArray(X), *_weights(*laws))


def random_tokens(law_x: Law, *laws: Any) -> tuple[Assumption, ...]:
    """X with independent entries; one law for tied weights W, two for W_Q and W_K."""
    return (RandomEntries((X,), law_x), *_weights(*laws))


def _weights(*laws: Any) -> tuple[Assumption, ...]:
    arrays = (W,) if len(laws) == 1 else (W_Q, W_K)
    return tuple(RandomEntries((array,), law) for array, law in zip(arrays, laws, strict=True))


def distinct(*rows: Any) -> tuple[Distinct, ...]:
    return tuple(Distinct(a, b) for a, b in combinations(rows, 2))


def claim_of(
    claim_id: str,
    *,
    en: str,
    ja: str,
    lhs: Any,
    rhs: Any,
    laws: tuple[Assumption, ...],
    source: Source,
    observable: str | None = None,
    note: Mapping[str, str] | None = None,
    rule: str = "moment-routes",
    relation: Relation = "=",
    data: Mapping[str, Any] | None = None,
) -> Claim:
    """A claim whose one step is lhs = rhs, checked by the rule from the laws stated."""
    step = Step(lhs, rhs, rule, relation, assumptions=laws, data=data or {})
    text = f"{lhs} {rhs} {' '.join(map(str, laws))}"
    used = {name: meaning for name, meaning in SYMBOLS.items() if name in text}
    return Claim(
        claim_id,
        {"en": en, "ja": ja},
        lhs,
        rhs,
        source,
        (step,),
        relation=relation,
        assumptions=laws,
        observable=observable,
        symbols=used,
        note=note or {},
    )
