"""What is random in a statement: families of arrays with their joint cumulants, read from the assumptions.

Guarantees: an array that is neither random nor fixed by an assumption is a StatementError, so a forgotten law can
never turn into "deterministic"; two laws for one array are refused.
Does not: infer independence; `RandomEntries` states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from derive.assumptions import Distinct, FixedArray, RandomEntries
from derive.errors import InputError, MomentError, StatementError
from derive.moments.laws import Law, Uncorrelated


@dataclass(frozen=True)
class GaussianPair:
    """Two entries at one place, jointly Gaussian: means, standard deviations, and their correlation."""

    means: tuple[Any, Any]
    deviations: tuple[Any, Any]
    correlation: Any

    def joint_cumulant(self, counts: tuple[int, ...]) -> Any:
        """Joint cumulant with each member taken counts[m] times; above the second order all are 0."""
        a, b = counts
        if a + b == 1:
            return self.means[0] if a else self.means[1]
        if a + b == 2:
            s, t = self.deviations
            return (self.correlation * s * t) if a == b else (s**2 if a else t**2)
        return sympy.S.Zero

    def __str__(self) -> str:
        return f"jointly Gaussian, means {self.means}, deviations {self.deviations}, correlation {self.correlation}"


@dataclass(frozen=True, eq=False)
class GaussianField:
    """Vectors that are jointly Gaussian and centred, with any covariance between their places.

    covariances: {(m, p): array} for members m ≤ p, E[x_m(a) x_p(b)] = array[a, b]; an array with m = p is symmetric.
    """

    covariances: Mapping[tuple[int, int], Any]

    def joint_cumulant(self, counts: tuple[int, ...]) -> Any:
        raise MomentError("a Gaussian field has covariances between places, not cumulants at one place")

    def __str__(self) -> str:
        return "jointly Gaussian, centred, covariances " + ", ".join(str(a) for a in self.covariances.values())


@dataclass(frozen=True)
class Family:
    """Arrays of one joint law. members: arrays of equal shape; law: Law (one member) or GaussianPair (two)."""

    members: tuple[Any, ...]
    law: Any

    def joint_cumulant(self, counts: tuple[int, ...]) -> Any:
        """Cumulant of the entries at one place, member m taken counts[m] times."""
        return self.law.cumulant(counts[0]) if isinstance(self.law, Law) else self.law.joint_cumulant(counts)

    def joint_moment(self, counts: tuple[int, ...]) -> Any:
        """E of the product at one place, by the recursion that takes one entry out: Σ over the block that holds it."""
        if isinstance(self.law, Law):
            return self.law.moment(counts[0])
        return _joint_moment(self, counts)


def _joint_moment(family: Family, counts: tuple[int, ...]) -> Any:
    first = next((m for m, c in enumerate(counts) if c), None)
    if first is None:
        return sympy.S.One
    rest = tuple(c - (m == first) for m, c in enumerate(counts))
    total = sympy.S.Zero
    for inside in _below(rest):
        ways = sympy.Mul(*(sympy.binomial(r, b) for r, b in zip(rest, inside, strict=True)))
        block = tuple(b + (m == first) for m, b in enumerate(inside))
        outside = tuple(r - b for r, b in zip(rest, inside, strict=True))
        total += ways * family.joint_cumulant(block) * _joint_moment(family, outside)
    return sympy.expand(total)


def _below(counts: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    if not counts:
        yield ()
        return
    for first in range(counts[0] + 1):
        for rest in _below(counts[1:]):
            yield (first, *rest)


@dataclass(frozen=True)
class Model:
    """Families of random arrays, and the arrays that are fixed.

    distinct: pairs of row labels said to differ. symmetric: fixed matrices that equal their transpose.
    """

    families: tuple[Family, ...]
    fixed: frozenset[Any]
    distinct: frozenset[frozenset[Any]] = frozenset()
    symmetric: frozenset[Any] = frozenset()

    def place(self, array: Any) -> tuple[int, int] | None:
        """(family, member) of a random array, or None when the array is fixed. Raises when it is neither."""
        for number, family in enumerate(self.families):
            if array in family.members:
                return number, family.members.index(array)
        if array in self.fixed:
            return None
        raise StatementError(f"array {array} has no law: state RandomEntries(({array},), law), or FixedArray({array})")

    def check_order(self, product: Iterable[tuple[Any, int]]) -> None:
        """Refuse a product of pieces with more entries of an array than its law says anything of."""
        counts: dict[int, int] = {}
        for piece, times in product:
            for factor in piece.factors:
                place = self.place(factor.array)
                if place is not None:
                    counts[place[0]] = counts.get(place[0], 0) + times
        for number, count in counts.items():
            law = self.families[number].law
            if isinstance(law, Uncorrelated) and count > 2:
                raise MomentError(f"{law}: known to second order, but {count} of its entries stand in one product")

    def same(self, one: Any, other: Any) -> bool:
        """Whether two row labels are one row. Raises when nothing says whether two symbols differ."""
        if one == other:
            return True
        if (one.is_Integer and other.is_Integer) or frozenset((one, other)) in self.distinct:
            return False
        raise StatementError(f"rows {one} and {other} may be equal: add Distinct({one}, {other}), or use one name")


def model_of(assumptions: Iterable[Any]) -> Model:
    """The model that a statement's assumptions describe."""
    families: list[Family] = []
    fixed: set[Any] = set()
    distinct: set[frozenset[Any]] = set()
    for one in assumptions:
        if isinstance(one, RandomEntries):
            families.append(_family(one))
        elif isinstance(one, FixedArray):
            fixed.add(one.array)
        elif isinstance(one, Distinct):
            distinct.add(frozenset((one.first, one.second)))
    symmetric: set[Any] = set()
    for family in families:
        if isinstance(family.law, GaussianField):
            fixed |= set(family.law.covariances.values())
            symmetric |= {array for (m, p), array in family.law.covariances.items() if m == p}
    arrays = [a for family in families for a in family.members] + list(fixed)
    twice = sorted({str(a) for a in arrays if arrays.count(a) > 1})
    if twice:
        raise StatementError(f"{', '.join(twice)}: more than one law, or a law and FixedArray; give each array one")
    return Model(tuple(families), frozenset(fixed), frozenset(distinct), frozenset(symmetric))


def _family(entry: RandomEntries) -> Family:
    wanted = {1: (Law, Uncorrelated), 2: (GaussianPair,)}.get(len(entry.arrays), ())
    if not isinstance(entry.law, (*wanted, GaussianField)):
        raise InputError(
            f"RandomEntries: expected one array with a Law, two with a GaussianPair, or a GaussianField, "
            f"got {len(entry.arrays)} with {type(entry.law).__name__}"
        )
    if len({a.shape for a in entry.arrays}) != 1:
        raise InputError("RandomEntries: arrays that share a law must have one shape")
    return Family(tuple(entry.arrays), entry.law)
