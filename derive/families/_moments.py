"""What the families of moment claims share: makers for scores, symbols, and claims of one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from derive.assumptions import Assumption
from derive.catalogue import Claim
from derive.language import index, size, total
from derive.source import Source
from derive.step import Step

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


def sizes(*names: str) -> tuple[Any, ...]:
    return tuple(size(name) for name in names)


def dot(q: Any, k: Any, d_k: Any) -> Any:
    """Σ_c q_c k_c for two vectors."""
    c = index("c")
    return total(q[c] * k[c], c, d_k)


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
    data: Mapping[str, Any] | None = None,
) -> Claim:
    """A claim whose one step is lhs = rhs, checked by the rule from the laws stated."""
    step = Step(lhs, rhs, rule, assumptions=laws, data=data or {})
    text = f"{lhs} {rhs} {' '.join(map(str, laws))}"
    used = {name: meaning for name, meaning in SYMBOLS.items() if name in text}
    return Claim(
        claim_id,
        {"en": en, "ja": ja},
        lhs,
        rhs,
        source,
        (step,),
        assumptions=laws,
        observable=observable,
        symbols=used,
        note=note or {},
    )
