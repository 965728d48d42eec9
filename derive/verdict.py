"""What a proof came to: six kinds, from weakest to strongest.

Guarantees: verdicts are ordered, a chain is as strong as its weakest member, and the text of a verdict begins
with its kind. `Unknown` is never printed as false, nor `Numeric` as proved.
Does not: say anything about how the verdict was reached; that is the step's rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Kind(IntEnum):
    """Strength of a verdict; a larger value is a stronger statement."""

    REFUTED = 0
    UNKNOWN = 1
    ASSUMED = 2
    NUMERIC = 3
    EXACT_AT_SIZES = 4
    PROVED = 5

    @property
    def title(self) -> str:
        return {0: "Refuted", 1: "Unknown", 2: "Assumed", 3: "Numeric", 4: "ExactAtSizes", 5: "Proved"}[self.value]


@dataclass(frozen=True)
class Verdict:
    """One verdict with its evidence.

    kind: strength. scope: what it holds for, in words (as "all sizes"). evidence: plain data: a witness
    (sizes and values) for Refuted, worst error and tolerance for Numeric, what the second checker saw (see
    `derive.prover.agreement`) for ExactAtSizes and an equality that is Proved, with the checkers that passed.

    >>> str(Verdict.proved("all sizes"))
    'Proved: all sizes'
    >>> Verdict.unknown("no rule applies") < Verdict.proved("all sizes")
    True
    """

    kind: Kind
    scope: str
    evidence: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def proved(cls, scope: str = "all sizes", **evidence: object) -> Verdict:
        return cls(Kind.PROVED, scope, evidence)

    @classmethod
    def exact_at_sizes(cls, scope: str, **evidence: object) -> Verdict:
        return cls(Kind.EXACT_AT_SIZES, scope, evidence)

    @classmethod
    def numeric(cls, scope: str, **evidence: object) -> Verdict:
        return cls(Kind.NUMERIC, scope, evidence)

    @classmethod
    def assumed(cls, text: str, **evidence: object) -> Verdict:
        return cls(Kind.ASSUMED, text, evidence)

    @classmethod
    def unknown(cls, reason: str, **evidence: object) -> Verdict:
        return cls(Kind.UNKNOWN, reason, evidence)

    @classmethod
    def refuted(cls, scope: str, **witness: object) -> Verdict:
        return cls(Kind.REFUTED, scope, witness)

    @property
    def is_proved(self) -> bool:
        return self.kind is Kind.PROVED

    def __lt__(self, other: Verdict) -> bool:
        return self.kind < other.kind

    def __le__(self, other: Verdict) -> bool:
        return self.kind <= other.kind

    def __str__(self) -> str:
        return f"{self.kind.title}: {self.scope}" if self.scope else self.kind.title

    def to_json(self) -> dict[str, object]:
        """Plain data for reports: kind, scope, and evidence as strings where it isn't plain already."""
        return {"kind": self.kind.title, "scope": self.scope, "evidence": _plain(self.evidence)}


def weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """The weakest of several verdicts; of equals the first. An empty chain proves nothing: Unknown."""
    chain = list(verdicts)
    return min(chain, key=lambda v: v.kind) if chain else Verdict.unknown("no steps")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    return str(value)
