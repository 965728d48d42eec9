"""One checked step of a derivation.

Guarantees: the page is printed from the very objects that were checked; a step names the rule that checks it,
and the rule is run by `derive.rules.check_step`.
Does not: hold any display-only text beyond `note`, which explains and is never evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from derive.assumptions import Assumption

Relation = Literal["=", "<=", "<", "limit", "rank"]
RELATIONS: tuple[str, ...] = get_args(Relation)


@dataclass(frozen=True)
class Step:
    """lhs REL rhs by a rule.

    lhs, rhs: SymPy expressions. rule: name of a registered rule (see `derive.rules`). premises: ids of claims
    this step uses. assumptions: side conditions as data (`derive.assumptions`)
    or in words, printed with the step. data: what the rule needs
    besides (definitions, a variable of differentiation, a grid): plain objects, never text to evaluate.
    """

    lhs: Any
    rhs: Any
    rule: str
    relation: Relation = "="
    premises: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    note: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
