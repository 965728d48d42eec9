"""Makers of claims that are inequalities or limits, for the families.

Guarantees: the claim's one step holds the certificate or the form that its rule checks.
Does not: hold claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from derive.catalogue import Claim
from derive.source import Source
from derive.step import Relation, Step


def claim_by(
    rule: str,
    claim_id: str,
    title: tuple[str, str],
    sides: tuple[Any, Any],
    *,
    relation: Relation,
    source: Source,
    assumptions: Iterable[Any] = (),
    data: Mapping[str, Any] | None = None,
    premises: tuple[str, ...] = (),
    note: tuple[str, str] | None = None,
    symbols: Mapping[str, str] | None = None,
    observable: str | None = None,
) -> Claim:
    """A claim of one step, checked by `rule`."""
    conditions = tuple(assumptions)
    lhs, rhs = (sympy.sympify(side, strict=True) for side in sides)
    return Claim(
        claim_id,
        {"en": title[0], "ja": title[1]},
        lhs,
        rhs,
        source,
        (Step(lhs, rhs, rule, relation, premises, conditions, data=dict(data or {})),),
        relation,
        conditions,
        observable,
        symbols or {},
        {"en": note[0], "ja": note[1]} if note else {},
    )


def bound(claim_id: str, title: tuple[str, str], sides: tuple[Any, Any], certificate: Any = None, **rest: Any) -> Claim:
    """lhs ≤ rhs (relation="<" for strict), with rhs − lhs = certificate ≥ 0."""
    data = {} if certificate is None else {"certificate": certificate}
    return claim_by("certified-difference", claim_id, title, sides, data=data, **{"relation": "<=", **rest})


def limit(
    claim_id: str, title: tuple[str, str], limit_of: tuple[Any, Any, Any], value: Any, form: Any = None, **rest: Any
) -> Claim:
    """lim of limit_of = (f, variable, point) is value; form is what f equals where the laws of limits apply."""
    function, variable, point = limit_of
    data = {} if form is None else {"form": form}
    sides = (sympy.Limit(function, variable, point, "-" if point is sympy.oo else "+-"), value)
    return claim_by("limit-laws", claim_id, title, sides, relation="limit", data=data, **rest)


def chained(claim_id: str, title: tuple[str, str], links: Iterable[Any], **rest: Any) -> Claim:
    """A claim whose chain of expressions is equal link by link; between two expressions stands the rule of that link
    with its data: (first, (rule, data), second, (rule, data), third …)."""
    parts = list(links)
    expressions = [sympy.sympify(e, strict=True) for e in parts[::2]]
    source, conditions = rest["source"], tuple(rest.get("assumptions", ()))
    steps = tuple(
        Step(before, after, name, "=", rest.get("premises", ()), conditions, data=dict(data))
        for before, (name, data), after in zip(expressions, parts[1::2], expressions[1:], strict=False)
    )
    note = rest.get("note")
    return Claim(
        claim_id,
        {"en": title[0], "ja": title[1]},
        expressions[0],
        expressions[-1],
        source,
        steps,
        "=",
        conditions,
        rest.get("observable"),
        rest.get("symbols", {}),
        {"en": note[0], "ja": note[1]} if note else {},
    )
