"""Side conditions as data: what a statement needs, stored by whoever states it and printed with it.

Guarantees: plain immutable records without logic, so that both checkers can read them and neither can share a
mistake of the other. They are never inferred from a SymPy expression, which may have cancelled what they speak of.
Does not: check them; a rule says which it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InRange:
    """A free index: lower ≤ index ≤ upper, both inclusive."""

    index: Any
    lower: Any
    upper: Any

    def __str__(self) -> str:
        return f"{self.lower} ≤ {self.index} ≤ {self.upper}"


@dataclass(frozen=True)
class AtLeast:
    """A size: size ≥ least (n ≥ 1 says that a row is not empty)."""

    size: Any
    least: int = 1

    def __str__(self) -> str:
        return f"{self.size} ≥ {self.least}"


@dataclass(frozen=True)
class Positive:
    """An expression that is > 0 wherever the statement is used, as a softmax denominator."""

    expr: Any

    def __str__(self) -> str:
        return f"{self.expr} > 0"


@dataclass(frozen=True)
class Ordered:
    """lower ≤ middle ≤ upper, as the place of a split of a range."""

    lower: Any
    middle: Any
    upper: Any

    def __str__(self) -> str:
        return f"{self.lower} ≤ {self.middle} ≤ {self.upper}"


@dataclass(frozen=True)
class Distinct:
    """Two indices that differ."""

    first: Any
    second: Any

    def __str__(self) -> str:
        return f"{self.first} ≠ {self.second}"


@dataclass(frozen=True)
class ZeroOne:
    """An array whose entries are 0 or 1, as a mask (1 = this key takes part)."""

    array: Any

    def __str__(self) -> str:
        return f"every entry of {self.array} is 0 or 1"


@dataclass(frozen=True)
class Defined:
    """An abbreviation: array[indices] := body, for indices in their ranges (a softmax kept opaque, say)."""

    array: Any
    indices: tuple[Any, ...]
    body: Any

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(str, self.indices))}] := {self.body}"


@dataclass(frozen=True)
class RandomEntries:
    """Random arrays of one joint law: entries at different places are independent, entries at one place have `law`.

    arrays: the arrays that share the law (one, or several that are correlated place by place). Arrays of different
    `RandomEntries` are independent of each other. law: a law of `derive.moments.laws`.
    """

    arrays: tuple[Any, ...]
    law: Any

    def __str__(self) -> str:
        names = ", ".join(str(a) for a in self.arrays)
        return f"{names}: entries at different places independent, each place {self.law}, independent of all else"


@dataclass(frozen=True)
class FixedArray:
    """An array that is not random: every expectation is at this value of it."""

    array: Any

    def __str__(self) -> str:
        return f"{self.array} is fixed"


Assumption = RandomEntries | FixedArray | InRange | AtLeast | Positive | Ordered | Distinct | ZeroOne | Defined | str
