"""Random arrays as Python objects: `q @ k`, `X @ W`, `S[i, j]`, powers, sums, and what they are worth on average.

Guarantees: an object is a SymPy expression together with the laws it rests on; nothing is parsed from text. Two row
labels of different names are two different rows.
Does not: broadcast anything but a vector added to every row of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import sympy

from derive.assumptions import Distinct, FixedArray, RandomEntries
from derive.errors import InputError
from derive.language import array
from derive.moments.laws import Law, Uncorrelated, from_cumulants
from derive.moments.model import GaussianPair

Entry = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Quantity:
    """A random number. expr: SymPy; laws: the assumptions it rests on (`RandomEntries`, `FixedArray`)."""

    expr: Any
    laws: tuple[Any, ...]

    def assumptions(self) -> tuple[Any, ...]:
        """The laws, and that rows of different names differ."""
        rows = {i for e in self.expr.atoms(sympy.Indexed) for i in e.indices if i.is_Symbol} & self.expr.free_symbols
        pairs = combinations(sorted(rows, key=str), 2)
        return (*self.laws, *(Distinct(a, b) for a, b in pairs))

    def __add__(self, other: Any) -> Quantity:
        return _combined(self, other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Quantity:
        return _combined(self, other, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Quantity:
        return _combined(self, other, lambda a, b: a * b)

    def __rsub__(self, other: Any) -> Quantity:
        return _combined(self, other, lambda a, b: b - a)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.expr, self.laws)

    def __truediv__(self, scale: Any) -> Quantity:
        if isinstance(scale, Quantity):
            raise InputError("division: expected a number or a symbol, got a random quantity")
        return Quantity(self.expr / sympy.sympify(scale, strict=True), self.laws)

    def __pow__(self, exponent: int) -> Quantity:
        if not isinstance(exponent, int) or exponent < 0:
            raise InputError(f"power: expected a natural number, got {exponent}")
        return Quantity(self.expr**exponent, self.laws)


def _combined(one: Quantity, other: Any, operation: Callable[[Any, Any], Any]) -> Quantity:
    if isinstance(other, Quantity):
        return Quantity(operation(one.expr, other.expr), _merged(one.laws, other.laws))
    if isinstance(other, Array):
        raise InputError("expected a number or a random quantity, got an array: take an entry of it first")
    return Quantity(operation(one.expr, sympy.sympify(other, strict=True)), one.laws)


def _merged(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*one, *(law for law in other if law not in one))


@dataclass(frozen=True, eq=False)
class Array:
    """A vector or matrix, random or fixed, or one computed from others.

    shape: one or two sizes. entry(*indices): the SymPy expression of an entry. laws: as in `Quantity`.
    """

    shape: tuple[Any, ...]
    entry: Entry
    laws: tuple[Any, ...]

    def __getitem__(self, indices: Any) -> Quantity:
        places = tuple(sympy.sympify(i, strict=True) for i in (indices if isinstance(indices, tuple) else (indices,)))
        if len(places) != len(self.shape):
            raise InputError(f"entry: expected {len(self.shape)} indices for shape {self.shape}, got {len(places)}")
        return Quantity(self.entry(*places), self.laws)

    @property
    def T(self) -> Array:
        """The transpose of a matrix; a vector is its own."""
        if len(self.shape) == 1:
            return self
        entry = self.entry
        return Array(self.shape[::-1], lambda i, j: entry(j, i), self.laws)

    def __matmul__(self, other: Array) -> Any:
        """Sum over the last axis of the left and the first of the right; of two vectors a `Quantity`."""
        if not isinstance(other, Array):
            raise InputError(f"@: expected two arrays, got {type(other).__name__} on the right")
        if self.shape[-1] != other.shape[0]:
            raise InputError(
                f"@: shapes {self.shape} and {other.shape} do not fit: {self.shape[-1]} ≠ {other.shape[0]}"
            )
        left, right, size = self.entry, other.entry, self.shape[-1]
        kept = len(self.shape) - 1

        def entry(*indices: Any) -> Any:
            binder = sympy.Dummy("c", integer=True)
            body = left(*indices[:kept], binder) * right(binder, *indices[kept:])
            return sympy.Sum(body, (binder, 0, size - 1))

        laws = _merged(self.laws, other.laws)
        shape = (*self.shape[:-1], *other.shape[1:])
        return Array(shape, entry, laws) if shape else Quantity(entry(), laws)

    def __add__(self, other: Array) -> Array:
        """Entrywise; a vector is added to every row of a matrix, as a bias is."""
        if not isinstance(other, Array) or self.shape[-len(other.shape) :] != other.shape:
            shown = other.shape if isinstance(other, Array) else type(other).__name__
            raise InputError(f"+: expected an array of shape {self.shape} or {self.shape[-1:]}, got {shown}")
        left, right, own = self.entry, other.entry, len(other.shape)
        return Array(self.shape, lambda *i: left(*i) + right(*i[-own:]), _merged(self.laws, other.laws))

    def __mul__(self, scale: Any) -> Array:
        factor, entry = sympy.sympify(scale, strict=True), self.entry
        return Array(self.shape, lambda *i: factor * entry(*i), self.laws)

    __rmul__ = __mul__

    def __truediv__(self, scale: Any) -> Array:
        return self * (1 / sympy.sympify(scale, strict=True))


def _plain(name: str, shape: tuple[Any, ...], laws: Callable[[Any], tuple[Any, ...]]) -> Array:
    sizes = tuple(sympy.sympify(s, strict=True) for s in shape)
    base = array(name, *sizes)
    return Array(sizes, lambda *i: base[i], laws(base))


def _law(law: Law | Uncorrelated | None, cumulants: Mapping[int, Any] | Sequence[Any] | None) -> Law | Uncorrelated:
    if (law is None) == (cumulants is None):
        raise InputError("expected either law=… or cumulants=…, got both or neither")
    if law is not None:
        return law
    assert cumulants is not None
    return from_cumulants(cumulants)


def vector(
    name: str, size: Any, *, cumulants: Mapping[int, Any] | Sequence[Any] | None = None, law: Law | None = None
) -> Array:
    """A vector of independent components of one law. cumulants: {order: value} or [mean, variance, third, …]."""
    chosen = _law(law, cumulants)
    return _plain(name, (size,), lambda base: (RandomEntries((base,), chosen),))


def matrix(
    name: str,
    rows: Any,
    columns: Any,
    *,
    cumulants: Mapping[int, Any] | Sequence[Any] | None = None,
    law: Law | Uncorrelated | None = None,
) -> Array:
    """A matrix of independent entries of one law, (rows, columns)."""
    chosen = _law(law, cumulants)
    return _plain(name, (rows, columns), lambda base: (RandomEntries((base,), chosen),))


def fixed(name: str, *shape: Any) -> Array:
    """An array that is not random: results contain sums over its entries (`PowerSum`: Gram entries for two rows)."""
    return _plain(name, shape, lambda base: (FixedArray(base),))


def correlated(
    names: tuple[str, str],
    *shape: Any,
    correlation: Any,
    means: tuple[Any, Any] = (0, 0),
    deviations: tuple[Any, Any] = (1, 1),
) -> tuple[Array, Array]:
    """Two arrays, jointly Gaussian place by place with this correlation; different places are independent.

    Raises InputError for a correlation outside [−1, 1].
    """
    sizes = tuple(sympy.sympify(s, strict=True) for s in shape)
    first, second = (array(name, *sizes) for name in names)
    values = [sympy.sympify(x, strict=True) for x in (*means, *deviations, correlation)]
    if (1 - values[4] ** 2).is_negative or values[4].is_real is False:
        raise InputError(f"correlation: expected a number from -1 to 1, got {correlation}")
    law = RandomEntries((first, second), GaussianPair((values[0], values[1]), (values[2], values[3]), values[4]))
    return (
        Array(sizes, lambda *i: first[i], (law,)),
        Array(sizes, lambda *i: second[i], (law,)),
    )
