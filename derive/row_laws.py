"""The laws about random rows as numbers: the exact value, the law, and the error the law states for itself.

Guarantees: everything is read off the claim: the left side evaluated by the exact oracle, the right side by its own
expression, the stated relative error from the step that was checked. So each curve can be drawn as "exact" and "law",
with the band the law claims.
Does not: know any formula.

>>> law = law_of("saturation.jacobian_large_sigma")
>>> sorted(law.symbols)
['n', 'v']
>>> value = law.at(n=64, v=400.0)
>>> abs(value.law / value.exact - 1) <= value.error
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from derive.catalogue import Claim, claim, claims
from derive.errors import StatementError
from derive.oracle_rules import exact_side
from derive.row_numbers import numeric

FAMILIES = ("saturation", "alternatives", "depth")


@dataclass(frozen=True)
class Value:
    """exact: by the oracle. law: the right side. error: the relative error that the law states for itself there."""

    exact: float
    law: float
    error: float


@dataclass(frozen=True)
class Law:
    """A claim whose two sides can be evaluated: exact ≈ law within the relative error, checked on the grid."""

    claim: Claim
    exact: Any
    law: Any
    error: Any
    grid: tuple[dict[str, float], ...]

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the parameters."""
        return frozenset(name for point in self.grid for name in point)

    def at(self, **point: float) -> Value:
        """All three numbers at one point. Raises StatementError when a parameter is missing."""
        return Value(numeric(self.exact, point), numeric(self.law, point), numeric(self.error, point))


def law_of(claim_id: str) -> Law:
    """The law of a claim. Raises StatementError for a claim that states no error, UnknownClaim for none."""
    one = claim(claim_id)
    found = _law(one)
    if found is None:
        raise StatementError(f"{claim_id} states no error: it is exact, a bound, or has no oracle; use its two sides")
    return found


def laws() -> Iterator[Law]:
    """Every law that states its error, in reading order."""
    for family in FAMILIES:
        for one in claims(family):
            found = _law(one)
            if found is not None:
                yield found


def _law(one: Claim) -> Law | None:
    step = one.steps[-1]
    if "error" not in step.data or "grid" not in step.data:
        return None
    return Law(one, exact_side(one.lhs), one.rhs, step.data["error"], tuple(step.data["grid"]))
