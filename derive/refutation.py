"""Refutation at points: what a rule answers when the stated side has another form than the one its theorem gives.

Guarantees: another form is never evidence. Refuted is answered only where interval arithmetic separates the values of
both sides at an exact point that the rule gives, one at which its theorem holds. The witness holds the point and both
intervals, so that anyone can evaluate the sides again. Everything else is Unknown, with the reason.
Does not: prove; find a witness for every false statement; draw points (`derive.prover.refuted` does).

mu(1), mu(2) and mu(3) have exact values. What has no closed form is enclosed apart, and the witness names it: a mean
over a random row or a constant of `derive.row_constants` is the oracle's value with 1e-9 of it to both sides (the
oracle states errors of about 1e-12, and its quadrature is no interval arithmetic).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy

from derive import intervals
from derive.at_sizes import Evaluator, Unreadable
from derive.errors import StatementError
from derive.instances import Statement
from derive.interval_numbers import Interval, Undefined
from derive.row_constants import freezing, gap_median, mu
from derive.row_nodes import Mean
from derive.verdict import Verdict

Point = Mapping[Any, Any]

_ROOM = Fraction(1, 10**9)
_NODES = (Mean, mu, freezing, gap_median)
_MU = {1: sympy.Integer(0), 2: 1 / sympy.sqrt(sympy.pi), 3: 3 / (2 * sympy.sqrt(sympy.pi))}


@dataclass(frozen=True)
class Separation:
    """A point and the two disjoint intervals of the sides there (decimal, rounded outwards).

    enclosed: what was put in as an interval because it has no closed form, with that interval.
    """

    point: Mapping[str, str]
    lhs: tuple[str, str]
    rhs: tuple[str, str]
    enclosed: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.point.items()) or "every point"
        sides = " and ".join(
            f"{name} lies in [{low}, {high}]" for name, (low, high) in (("lhs", self.lhs), ("rhs", self.rhs))
        )
        given = ", ".join(f"{name} in [{low}, {high}]" for name, (low, high) in self.enclosed.items())
        return f"at {at}: {sides}" + (f", with {given}" if given else "")


def at_points(
    known: Any, stated: Any, points: Sequence[Point], words: str, *, relation: str = "=", **evidence: object
) -> Verdict:
    """Refuted in `words` where intervals show that known = stated (or known ≤ stated) fails at one of the points.

    known: what the rule's theorem gives; for "<=" a value that is attained. points: exact values of the symbols, at
    each of which the theorem holds. Anything else is Unknown, with the reason.
    """
    reason = "no point to look at"
    for point in points:
        try:
            left, right = enclosure(known, point), enclosure(stated, point)
            if relation == "=" or right.value.below(left.value):
                return separated(left, right, point, words, **evidence)
            reason = "the right side is not shown to be too small"
        except (Undefined, StatementError) as error:
            reason = str(error)
    return Verdict.unknown(f"not shown to be equal, nor to differ: {known} and {stated} ({reason})")


@dataclass(frozen=True)
class Enclosure:
    """The value of a side: an interval, and what went into it as an interval of its own."""

    value: Interval
    enclosed: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def separated(left: Enclosure, right: Enclosure, point: Point, words: str, **evidence: object) -> Verdict:
    """Refuted where the two intervals are disjoint. Raises Undefined where they meet, which decides nothing."""
    if not (left.value.below(right.value) or right.value.below(left.value)):
        raise Undefined("the intervals of the two sides meet")
    witness = Separation(
        {str(name): str(value) for name, value in point.items()},
        left.value.decimal(),
        right.value.decimal(),
        {**left.enclosed, **right.enclosed},
    )
    return Verdict.refuted(words, witness=witness, **evidence)


def enclosure(side: Any, point: Point) -> Enclosure:
    """The value of a side at a point. Raises StatementError or Undefined where it has no interval there."""
    placed = sympy.sympify(side, strict=True)
    if placed.has(sympy.Derivative, sympy.Integral):
        raise Unreadable(f"{placed} has a derivative or an integral, which has no interval here")
    placed = placed.xreplace(dict(point))
    placed = placed.replace(lambda x: isinstance(x, mu), lambda x: _MU.get(x.args[0], x))
    placed = placed.replace(lambda x: isinstance(x, sympy.acosh), lambda x: _area_cosine(x.args[0]))
    given: dict[Any, Interval] = {}
    shown: dict[str, tuple[str, str]] = {}
    for node in sorted(placed.atoms(*_NODES), key=str):
        given[symbol := sympy.Dummy(real=True)] = interval = _enclosed(node)
        placed = placed.xreplace({node: symbol})
        shown[str(node)] = interval.decimal()
    statement = Statement((placed,), ())
    return Enclosure(Evaluator(statement, {}, _Values(statement, given)).value(placed), shown)


def _area_cosine(x: Any) -> Any:
    return sympy.log(x + sympy.sqrt(x**2 - 1))


def _enclosed(node: Any) -> Interval:
    value = node.evalf(17)
    if not value.is_Float or not value.is_finite:
        raise Unreadable(f"{node} has no number here")
    middle = Fraction(*map(int, sympy.Rational(value).as_numer_denom()))
    return Interval.of(middle) + Interval.of(abs(middle) * _ROOM) * Interval.between(Fraction(-1), Fraction(1))


class _Values(intervals.Reals):
    """Interval arithmetic in which the only symbols are those that stand for an enclosed node."""

    def __init__(self, statement: Statement, given: Mapping[Any, Interval]) -> None:
        super().__init__("", 0, statement)
        self._given = given

    def entry(self, label: str, place: tuple[int, ...]) -> Any:
        raise Unreadable(f"{label} has no value at this point")

    def scalar(self, symbol: Any) -> Any:
        if symbol not in self._given:
            raise Unreadable(f"{symbol} has no value at this point")
        return self._given[symbol]
