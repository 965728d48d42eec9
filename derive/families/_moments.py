"""What the families of moment claims share: makers for scores, symbols, and claims of one step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import sympy

from derive.assumptions import Assumption, Defined, Distinct, FixedArray, InRange, RandomEntries
from derive.catalogue import Claim
from derive.language import array, index, scalar, size, total
from derive.moments.laws import Law, mean_variance
from derive.moments.model import GaussianField
from derive.source import Source
from derive.step import Relation, Step

SYMBOLS = {
    "d_k": "number of components of a query or key",
    "d_model": "number of components of a token",
    "n": "number of tokens (of queries)",
    "m": "number of keys",
    "h": "number of heads",
    "q": "query, (d_k)",
    "k": "key, (d_k)",
    "Q": "queries, (n, d_k)",
    "K": "keys, (m, d_k)",
    "X": "tokens, (n, d_model)",
    "W_Q": "query weights, (d_model, d_k)",
    "W_K": "key weights, (d_model, d_k)",
    "W": "tied weights, (d_model, d_k)",
    "W_Q2": "query weights of the second head, (d_model, d_k)",
    "W_K2": "key weights of the second head, (d_model, d_k)",
    "b_Q": "bias of the queries, (d_k)",
    "b_K": "bias of the keys, (d_k)",
    "Sigma_q": "covariance matrix of q, (d_k, d_k)",
    "Sigma_k": "covariance matrix of k, (d_k, d_k)",
    "C": "covariances of q with k, (d_k, d_k)",
    "S": "scores, a row for each query and a column for each key",
    "S2": "scores of the second head, (n, n)",
    "G": "Gram matrix of the tokens X Xᵀ, (n, n)",
    "mu_q": "mean of a component of q",
    "mu_k": "mean of a component of k",
    "mu_x": "mean of an entry of X",
    "sigma_q": "standard deviation of a component of q, or of an entry of W_Q",
    "sigma_k": "standard deviation of a component of k, or of an entry of W_K",
    "sigma_x": "standard deviation of an entry of X",
    "sigma_w": "standard deviation of a weight",
    "beta_q": "standard deviation of an entry of b_Q",
    "beta_k": "standard deviation of an entry of b_K",
    "gamma_q": "skewness of a component of q",
    "gamma_k": "skewness of a component of k",
    "e_q": "excess kurtosis of a component of q, or of an entry of W_Q",
    "e_k": "excess kurtosis of a component of k, or of an entry of W_K",
    "e_x": "excess kurtosis of an entry of X",
    "e_w": "excess kurtosis of a weight",
    "rho": "correlation of q_c and k_c",
    "t": "argument of the characteristic function",
    "z": "argument of the density or distribution function",
}


n, m, d_k, d_model, h = (size(name) for name in ("n", "m", "d_k", "d_model", "h"))
i, j, l = index("i"), index("j"), index("l")

MU_Q, MU_K, RHO = scalar("mu_q"), scalar("mu_k"), scalar("rho")
SIGMA_Q, SIGMA_K = scalar("sigma_q", positive=True), scalar("sigma_k", positive=True)
MU_X = scalar("mu_x")
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

# Abbreviations: S for scores, S2 for those of a second head, G for the Gram matrix of the tokens.
COV_Q, COV_K, COV = (array(name, d_k, d_k) for name in ("Sigma_q", "Sigma_k", "C"))
B_Q, B_K = array("b_Q", d_k), array("b_K", d_k)
S, S2, G = array("S", n, n), array("S2", n, n), array("G", n, n)
CROSS = array("S", n, m)


def _projected(row: Any, weights: Any, name: str) -> Callable[[Any], Any]:
    a = index(name)
    return lambda c: total(X[row, a] * weights[a, c], a, d_model)


def _attention(scores: Any, queries: Any, keys: Any) -> Defined:
    return Defined(scores, (i, j), _dot(_projected(i, queries, "a"), _projected(j, keys, "b")))


# S = Q Kᵀ; S = (X W_Q)(X W_K)ᵀ; S = (X W)(X W)ᵀ; the second head; G = X Xᵀ.
CROSS_SCORES = Defined(CROSS, (i, j), _dot(lambda c: Q[i, c], lambda c: K[j, c]))
SELF_SCORES = _attention(S, W_Q, W_K)
TIED_SCORES = _attention(S, W, W)
OTHER_HEAD = _attention(S2, V_Q, V_K)
GRAM = Defined(G, (i, j), total(X[i, index("a")] * X[j, index("a")], index("a"), d_model))


def _biased() -> Defined:
    left, right = _projected(i, W_Q, "a"), _projected(j, W_K, "b")
    return Defined(S, (i, j), _dot(lambda c: left(c) + B_Q[c], lambda c: right(c) + B_K[c]))


# S = (X W_Q + b_Q)(X W_K + b_K)ᵀ.
BIASED_SCORES = _biased()


def random_biases(deviation_q: Any, deviation_k: Any) -> tuple[Assumption, ...]:
    """Biased scores with random biases of mean 0."""
    laws = (mean_variance(0, deviation**2) for deviation in (deviation_q, deviation_k))
    return (BIASED_SCORES, *(RandomEntries((b,), law) for b, law in zip((B_Q, B_K), laws, strict=True)))


def fixed_biases() -> tuple[Assumption, ...]:
    """Biased scores with biases that are not random."""
    return (BIASED_SCORES, FixedArray(B_Q), FixedArray(B_K))


def length_squared(vector: Any) -> Any:
    """‖b‖² = Σ_c b_c² for a vector of d_k components."""
    return _dot(lambda c: vector[c], lambda c: vector[c])


def linear_forms(row: Any, column: Any, place: Any) -> tuple[Any, Any]:
    """Component `place` of the query of one token and of the key of another: Σ_a x_ia W_Q,ac and Σ_b x_jb W_K,bc."""
    return _projected(row, W_Q, "a")(place), _projected(column, W_K, "b")(place)


def squares_in_common(one: Any, other: Any) -> Any:
    """Σ_a x_ia² x_ja², what the kurtosis of weights multiplies."""
    a = index("a")
    return total(X[one, a] ** 2 * X[other, a] ** 2, a, d_model)


def row_variance_of(scores: Any, columns: Any) -> Any:
    """(1/n) Σ_i Var_j S_ij, the mean over rows of the variance within the row (divided by the number of keys)."""
    squares = total(scores[i, j] ** 2, j, columns) / columns
    mean = total(scores[i, j], j, columns) / columns
    return total(squares - mean**2, i, n) / n


def gaussian_field() -> tuple[Assumption, ...]:
    """q and k jointly Gaussian and centred, with any covariances Σ_q, Σ_k and C = E q kᵀ between components."""
    field = GaussianField({(0, 0): COV_Q, (1, 1): COV_K, (0, 1): COV})
    return (RandomEntries((q, k), field),)


def two_heads(law_x: Law, law: Law) -> tuple[Assumption, ...]:
    """Random tokens and two heads, all four weight matrices independent and of one law."""
    weights = (RandomEntries((w,), law) for w in (W_Q, W_K, V_Q, V_K))
    return (SELF_SCORES, OTHER_HEAD, RandomEntries((X,), law_x), *weights)


def products(law_q: Law, law_k: Law) -> tuple[RandomEntries, ...]:
    """Vectors q and k with independent components of these laws."""
    return RandomEntries((q,), law_q), RandomEntries((k,), law_k)


def vectors(mean_q: Any = MU_Q, mean_k: Any = MU_K) -> tuple[RandomEntries, ...]:
    """q and k with independent components, known by mean and variance alone."""
    return products(mean_variance(mean_q, SIGMA_Q**2), mean_variance(mean_k, SIGMA_K**2))


def independent_rows(law_q: Law, law_k: Law) -> tuple[Assumption, ...]:
    """S = Q Kᵀ for independent queries and keys with independent entries of these laws."""
    return (CROSS_SCORES, RandomEntries((Q,), law_q), RandomEntries((K,), law_k))


def fixed_tokens(*laws: Any) -> tuple[Assumption, ...]:
    """S from a fixed X, with its Gram matrix; one law for tied weights W, two for W_Q and W_K."""
    return (*_weights(*laws), FixedArray(X), GRAM)


def random_tokens(law_x: Law, *laws: Any) -> tuple[Assumption, ...]:
    """S from an X with independent entries; one law for tied weights W, two for W_Q and W_K."""
    return (*_weights(*laws), RandomEntries((X,), law_x))


def _weights(*laws: Any) -> tuple[Assumption, ...]:
    if len(laws) == 1:
        return (TIED_SCORES, RandomEntries((W,), laws[0]))
    return (SELF_SCORES, RandomEntries((W_Q,), laws[0]), RandomEntries((W_K,), laws[1]))


def rows(*labels: Any) -> tuple[Assumption, ...]:
    """Tokens i, j, …: each in its range, no two the same."""
    ranges = (InRange(label, sympy.S.Zero, n - 1) for label in labels)
    return (*ranges, *(Distinct(a, b) for a, b in combinations(labels, 2)))


def entry_of(row: Any, column: Any, *others: Any) -> tuple[Assumption, ...]:
    """Entries of Q Kᵀ: a query row, key columns; others: ("row" or "column", label), different from its fellow."""
    ranges = [InRange(row, sympy.S.Zero, n - 1), InRange(column, sympy.S.Zero, m - 1)]
    differ = []
    for kind, label in others:
        ranges.append(InRange(label, sympy.S.Zero, (n if kind == "row" else m) - 1))
        differ.append(Distinct(row if kind == "row" else column, label))
    return (*ranges, *differ)


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
    via: Sequence[tuple[Any, str, str]] = (),
    last: tuple[str, str] = ("", ""),
) -> Claim:
    """A claim lhs = rhs, checked by the rule from the laws stated, in one step or through others.

    via: (expression, why in English, why in Japanese) for each stop between lhs and rhs; last: why the last step.
    """
    stops = [(lhs, "", ""), *via, (rhs, *last)]
    steps = tuple(
        Step(
            before,
            after,
            rule,
            relation,
            assumptions=laws,
            note={"en": why_en, "ja": why_ja} if why_en else {},
            data=data or {},
        )
        for (before, _, _), (after, why_en, why_ja) in pairwise(stops)
    )
    words = set(re.findall(r"\w+", f"{lhs} {rhs} {' '.join(map(str, laws))}"))
    used = {name: meaning for name, meaning in SYMBOLS.items() if name in words}
    return Claim(
        claim_id,
        {"en": en, "ja": ja},
        lhs,
        rhs,
        source,
        steps,
        relation=relation,
        assumptions=laws,
        observable=observable,
        symbols=used,
        note=note or {},
    )
