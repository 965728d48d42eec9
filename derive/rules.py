"""The registry of rules: small named functions, each of which can check one kind of step.

Guarantees: a step is only as good as the verdict its rule returns when run; an unknown rule is an error, never a pass.
Does not: contain rules itself; each lives with the engine it belongs to and registers itself on import.

A rule's docstring says why it is sound and what it needs; reports print its first line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TypeVar

from derive.errors import DeriveError, StatementError
from derive.step import Step
from derive.verdict import Verdict

Rule = Callable[[Step], Verdict]
_F = TypeVar("_F", bound=Rule)
_RULES: dict[str, Rule] = {}
# Modules that register rules when imported, in the order in which they are tried.
_HOMES: list[str] = [
    "derive.prover",
    "derive.bounds",
    "derive.limits",
    "derive.congruence",
    "derive.recursions",
    "derive.trigonometry",
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
    """Run the step's rule. Raises DeriveError when no rule has the step's name, StatementError when the step holds text
    where an expression belongs: SymPy would run it as code."""
    known = rules()
    if step.rule not in known:
        raise DeriveError(f"step uses rule {step.rule!r}, which does not exist; rules are {', '.join(sorted(known))}")
    _refuse_text(step)
    return known[step.rule](step)


def _refuse_text(step: Step) -> None:
    # "opaque" holds names of arrays, which are compared and never read as expressions.
    data = [(f"data[{key!r}]", x) for key, x in step.data.items() if key != "opaque"]
    parts = [("a side", step.lhs), ("a side", step.rhs), *data]
    for one in step.assumptions:
        if is_dataclass(one):
            # The array of a condition may be given by its name, which is compared and never read as an expression.
            parts += [(type(one).__name__, getattr(one, f.name)) for f in fields(one) if f.name not in ("array", "law")]
    for place, part in parts:
        for leaf in _leaves(part):
            if isinstance(leaf, str):
                raise StatementError(f"{place}: expected SymPy expressions and numbers, got the text {leaf!r}")


def _leaves(part: object) -> Iterator[object]:
    if isinstance(part, Mapping):
        part = tuple(part.values())
    if isinstance(part, (list, tuple, set, frozenset)):
        for inner in part:
            yield from _leaves(inner)
    else:
        yield part
