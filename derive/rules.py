"""The registry of rules: small named functions, each of which can check one kind of step.

Guarantees: a step is only as good as the verdict its rule returns when run; an unknown rule is an error, never a pass.
Does not: contain rules itself; each lives with the engine it belongs to and registers itself on import.

A rule's docstring says why it is sound and what it needs; reports print its first line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeVar

from derive.errors import DeriveError
from derive.step import Step
from derive.verdict import Verdict

Rule = Callable[[Step], Verdict]
_F = TypeVar("_F", bound=Rule)
_RULES: dict[str, Rule] = {}
# Modules that register rules when imported, in the order in which they are tried.
_HOMES: list[str] = [
    "derive.prover",
    "derive.inequalities",
    "derive.limits",
    "derive.congruence",
    "derive.recursions",
    "derive.trigonometry",
    "derive.bounds_by_sign",
    "derive.moments.checking",
    "derive.score_law",
    "derive.row_rules",
    "derive.limit_rules",
    "derive.gradient_rules",
    "derive.level_rules",
    "derive.alternative_rules",
    "derive.depth_rules",
    "derive.oracle_rules",
]


def rule(name: str) -> Callable[[_F], _F]:
    """Register a function Step -> Verdict under a name. A name can be taken once, and the docstring is required."""

    def register(function: _F) -> _F:
        if name in _RULES and _RULES[name].__module__ != function.__module__:
            raise DeriveError(f"rule {name!r} is registered twice")
        if not function.__doc__:
            raise DeriveError(f"rule {name!r} has no docstring: say why it is sound and what it needs")
        _RULES[name] = function
        return function

    return register


def rules() -> dict[str, Rule]:
    """All rules by name."""
    for home in _HOMES:
        importlib.import_module(home)
    return dict(_RULES)


def check_step(step: Step) -> Verdict:
    """Run the step's rule. Raises DeriveError when no rule has the step's name."""
    known = rules()
    if step.rule not in known:
        raise DeriveError(f"step uses rule {step.rule!r}, which does not exist; rules are {', '.join(sorted(known))}")
    return known[step.rule](step)
