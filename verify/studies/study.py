"""The nouns of a study: a point, a test, a table, and the result that a report prints.

Guarantees: a result is plain data, JSON-able, without time, version or machine in it; it names its claim, its seed
and the command that makes it again. Does not: run anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from verify.studies.statistics import Measured

Outcome = Literal["agrees", "differs", "undecided"]
Cell = str | int | float | None


class Phrase(str):
    """A sentence with its parts kept apart, so that a page can say it in another language; as a string, English.

    >>> Phrase("{} keys, p = {:.2g}", 64, 0.1234), Phrase("{} keys", 64).template
    ('64 keys, p = 0.12', '{} keys')
    """

    template: str
    parts: tuple[object, ...]

    def __new__(cls, template: str, *parts: object) -> Phrase:
        made = super().__new__(cls, template.format(*parts))
        made.template, made.parts = template, parts
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.template, *self.parts)


@dataclass(frozen=True)
class Point:
    """One measurement beside its law. factors: what was set, as {"d_k": 64, "scale": "1/√d_k"}."""

    factors: Mapping[str, Cell]
    measured: Measured
    law: float

    @property
    def score(self) -> float:
        return self.measured.score(self.law)

    def to_json(self) -> dict[str, Any]:
        low, high = self.measured.interval()
        return {
            "factors": dict(self.factors),
            "value": self.measured.value,
            "standard_error": self.measured.standard_error,
            "interval": [low, high],
            "law": self.law,
            "z": self.score,
        }


@dataclass(frozen=True)
class Test:
    """One declared comparison. passed None: nothing was decided. detail: the numbers, in words."""

    __test__ = False  # not a pytest class

    statement: str
    detail: str
    p: float | None = None
    passed: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {"statement": self.statement, "detail": self.detail, "p": self.p, "passed": self.passed}


@dataclass(frozen=True)
class Table:
    """A titled table of cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "header": list(self.header), "rows": [list(r) for r in self.rows]}


@dataclass(frozen=True)
class StudyResult:
    """What a study came to.

    outcome: "agrees" when every test passed, "differs" when one failed, else "undecided". claims: ids of the laws
    used. command: makes the result again. data: further plain arrays for figures.
    """

    name: str
    title: str
    claims: tuple[str, ...]
    command: str
    seed: int
    points: tuple[Point, ...]
    tests: tuple[Test, ...]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        answers = [t.passed for t in self.tests]
        if any(a is False for a in answers):
            return "differs"
        return "agrees" if answers and all(answers) else "undecided"

    @property
    def exit_code(self) -> int:
        return 0 if self.outcome == "agrees" else 1

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.name,
            "title": self.title,
            "outcome": self.outcome,
            "claims": list(self.claims),
            "command": self.command,
            "seed": self.seed,
            "points": [p.to_json() for p in self.points],
            "tests": [t.to_json() for t in self.tests],
            "tables": [t.to_json() for t in self.tables],
            "notes": list(self.notes),
        }
