"""Enumeration at larger sizes: the statement multiplied out entry by entry, then each monomial's mean looked up.

Guarantees: exact at the sizes it was run at. Multiplies out by the definition of the sums, with no set partitions, no
cumulant of a sum and no joining of indices; the mean of a monomial is the product of raw moments of its entries.
Does not: say anything about other sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy

from derive.errors import MomentError
from derive.moments import algebra
from derive.moments.algebra import Poly
from derive.moments.enumeration import FixedEntries, Place, World, compiled, scalars_out, to_fraction
from derive.moments.laws import Law
from derive.moments.model import GaussianField, Model
from derive.moments.nodes import Expect, in_expectations

# Products of terms that one multiplication may form.
_MOST = 60_000


class Entries:
    """A polynomial in array entries with rational coefficients, with the arithmetic that `compiled` asks for."""

    __slots__ = ("poly",)

    def __init__(self, poly: Poly) -> None:
        self.poly = poly

    def __add__(self, other: Any) -> Entries:
        return Entries(algebra.add(self.poly, _poly(other)))

    def __mul__(self, other: Any) -> Entries:
        right = _poly(other)
        if len(self.poly) * len(right) > _MOST:
            raise MomentError("too many terms to multiply out: take smaller sizes")
        return Entries(algebra.multiply(self.poly, right))

    def __pow__(self, exponent: int) -> Entries:
        result = Entries(algebra.constant(1))
        for _ in range(exponent):
            result = result * self
        return result

    __radd__ = __add__
    __rmul__ = __mul__


def _poly(value: Any) -> Poly:
    return value.poly if isinstance(value, Entries) else algebra.constant(value)


class _Random(dict[Place, Any]):
    """Entries of a random array: each is a generator (family, member, place)."""

    def __init__(self, family: int, member: int) -> None:
        super().__init__()
        self.name = (family, member)

    def __missing__(self, place: Place) -> Entries:
        self[place] = Entries(algebra.generator((*self.name, place)))
        return self[place]


def expanded_at(statement: Any, model: Model, values: Mapping[Any, Any]) -> Any:
    """The statement's exact value at numbers for its sizes, scalars and row labels, as a SymPy number."""
    opened = in_expectations(sympy.sympify(statement, strict=True))
    symbols = {s: to_fraction(v) for s, v in values.items()}
    arrays: dict[Any, Any] = {a: FixedEntries(a in model.symmetric) for a in model.fixed}
    for number, family in enumerate(model.families):
        arrays |= {a: _Random(number, member) for member, a in enumerate(family.members)}
    put = {}
    for node in opened.atoms(Expect):
        scalar, body = scalars_out(node.args[0])
        total = _mean(_poly(compiled(body)(World(symbols, arrays))), model, values, arrays)
        put[node] = scalar * sympy.Rational(total.numerator, total.denominator)
    return opened.xreplace(put).xreplace({s: sympy.sympify(v, strict=True) for s, v in values.items()})


def _mean(poly: Poly, model: Model, values: Mapping[Any, Any], arrays: Mapping[Any, Any]) -> Fraction:
    known: dict[Any, Fraction] = {}
    total = Fraction(0)
    for monomial, coefficient in poly.items():
        places: dict[tuple[int, Place], Counter[int]] = {}
        fields: dict[int, list[tuple[int, Place]]] = {}
        for (family, member, place), exponent in monomial:
            if isinstance(model.families[family].law, GaussianField):
                fields.setdefault(family, []).extend([(member, place)] * exponent)
            else:
                places.setdefault((family, place), Counter())[member] += exponent
        value = coefficient
        for (number, _), counts in places.items():
            key = (number, tuple(sorted(counts.items())))
            if key not in known:
                known[key] = _entry_moment(model, number, counts, values)
            value *= known[key]
        for number, entries in fields.items():
            value *= _isserlis(entries, model.families[number].law, arrays)
        total += value
    return total


def _isserlis(entries: list[tuple[int, Place]], field: GaussianField, arrays: Mapping[Any, Any]) -> Fraction:
    """E of a product of jointly Gaussian entries: the first is paired with each of the others in turn."""
    if not entries:
        return Fraction(1)
    total = Fraction(0)
    for partner in range(1, len(entries)):
        (m, a), (p, b) = sorted((entries[0], entries[partner]), key=lambda entry: entry[0])
        covariance = arrays[field.covariances[m, p]][a + b]
        total += covariance * _isserlis(entries[1:partner] + entries[partner + 1 :], field, arrays)
    return total


def _entry_moment(model: Model, number: int, counts: Counter[int], values: Mapping[Any, Any]) -> Fraction:
    family = model.families[number]
    orders = tuple(counts.get(m, 0) for m in range(len(family.members)))
    moment = family.law.moment(orders[0]) if isinstance(family.law, Law) else family.joint_moment(orders)
    return to_fraction(sympy.sympify(moment, strict=True).xreplace(dict(values)))
