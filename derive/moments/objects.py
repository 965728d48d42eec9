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
from derive.moments import inputs
from derive.moments.laws import Law, Uncorrelated, from_cumulants
from derive.moments.model import GaussianPair

Entry = Callable[..., Any]
# Makers of laws, for the mend that an error offers.
_LAWS = (
    *("gaussian", "laplace", "rademacher", "student", "uniform", "shifted_exponential", "truncated_gaussian"),
    *("xavier", "lecun", "he", "orthogonal", "inverse_root", "shaped", "mean_variance"),
)


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
        return Quantity(self.expr / _divisor(scale), self.laws)

    def __pow__(self, exponent: int) -> Quantity:
        return Quantity(self.expr ** inputs.whole(exponent, "power", 0), self.laws)

    def __rtruediv__(self, other: Any) -> Quantity:
        raise InputError("division: a random quantity under the bar has no polynomial moments; expected a polynomial")

    def __rpow__(self, other: Any) -> Quantity:
        raise InputError("power: a random exponent has no polynomial moments; expected a polynomial")

    def __matmul__(self, other: Any) -> Quantity:
        raise InputError("@: expected two arrays, got a random number on the left; numbers are multiplied by *")

    def __rmatmul__(self, other: Any) -> Quantity:
        raise InputError("@: expected two arrays, got a random number on the right; numbers are multiplied by *")


def _divisor(scale: Any) -> Any:
    divisor = inputs.exact(scale, "division")
    if divisor.is_zero:
        raise InputError("division by 0: expected a number or a symbol that isn't 0")
    return divisor


def _combined(one: Quantity, other: Any, operation: Callable[[Any, Any], Any]) -> Quantity:
    if isinstance(other, Quantity):
        return Quantity(operation(one.expr, other.expr), _merged(one.laws, other.laws))
    if isinstance(other, Array):
        raise InputError("expected a number or a random quantity, got an array: take an entry of it first")
    return Quantity(operation(one.expr, inputs.exact(other, "number beside a random quantity")), one.laws)


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
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.shape):
            raise InputError(f"entry: expected {len(self.shape)} indices for shape {self.shape}, got {len(given)}")
        places = [inputs.index(i, extent) for i, extent in zip(given, self.shape, strict=True)]
        return Quantity(self.entry(*places), self.laws)

    @property
    def T(self) -> Array:
        """The transpose of a matrix; a vector is its own."""
        if len(self.shape) == 1:
            return self
        entry = self.entry
        return Array(self.shape[::-1], lambda i, j: entry(j, i), self.laws)

    def __matmul__(self, other: Any) -> Any:
        """Sum over the last axis of the left and the first of the right; of two vectors a `Quantity`."""
        if not isinstance(other, Array):
            raise InputError(f"@: expected two arrays, got {inputs.shown(other)} on the right")
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

    def __add__(self, other: Any) -> Array:
        """Entrywise; a vector is added to every row of a matrix, as a bias is."""
        if not isinstance(other, Array) or self.shape[-len(other.shape) :] != other.shape:
            shown = f"shape {other.shape}" if isinstance(other, Array) else inputs.shown(other)
            raise InputError(f"+: expected an array of shape {self.shape} or {self.shape[-1:]}, got {shown}")
        left, right, own = self.entry, other.entry, len(other.shape)
        return Array(self.shape, lambda *i: left(*i) + right(*i[-own:]), _merged(self.laws, other.laws))

    def __radd__(self, other: Any) -> Array:
        return self + other

    def __sub__(self, other: Any) -> Array:
        if not isinstance(other, Array):
            return self + other  # which says what was expected
        return self + (-1) * other

    def __neg__(self) -> Array:
        return self * (-1)

    def __mul__(self, scale: Any) -> Array:
        if isinstance(scale, (Array, Quantity)):
            raise InputError("*: expected a number or a symbol; two arrays are multiplied by @, entries as x[i] * y[i]")
        factor, entry = inputs.exact(scale, "factor of an array"), self.entry
        return Array(self.shape, lambda *i: factor * entry(*i), self.laws)

    __rmul__ = __mul__

    def __truediv__(self, scale: Any) -> Array:
        if isinstance(scale, (Array, Quantity)):
            raise InputError("division: expected a number or a symbol, got something random")
        return self * (1 / _divisor(scale))

    def __pow__(self, exponent: Any) -> Array:
        raise InputError("power: of an array it is not defined here; take an entry, x[i]**2, or a product, x @ x")

    def __rmatmul__(self, other: Any) -> Array:
        raise InputError(f"@: expected two arrays, got {inputs.shown(other)} on the left")


def _plain(name: str, shape: tuple[Any, ...], laws: Callable[[Any], tuple[Any, ...]]) -> Array:
    sizes = _sizes(shape)
    base = array(inputs.name(name, "name of an array"), *sizes)
    return Array(sizes, lambda *i: base[i], laws(base))


def _sizes(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    if not 1 <= len(shape) <= 2:
        raise InputError(f"shape: expected one or two sizes, got {len(shape)}")
    return tuple(inputs.size(s, "size of an array") for s in shape)


def _law(law: Any, cumulants: Mapping[int, Any] | Sequence[Any] | None) -> Law | Uncorrelated:
    if (law is None) == (cumulants is None):
        raise InputError("expected either law=… or cumulants=…, got both or neither")
    if law is not None:
        if not isinstance(law, (Law, Uncorrelated)):
            called = law if isinstance(law, str) else getattr(law, "__name__", "gaussian")
            likely = called if called in _LAWS else "gaussian"
            raise InputError(f"law: expected a Law, got {inputs.shown(law)}; did you mean law=moments.{likely}(…)?")
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

    Raises InputError for a correlation outside [−1, 1], a negative deviation, or anything that isn't a pair where one
    is expected.
    """
    for what, pair in (("names", names), ("means", means), ("deviations", deviations)):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"{what}: expected a pair, one for each array, got {inputs.shown(pair)}")
    sizes = _sizes(shape)
    if names[0] == names[1]:
        raise InputError(f"names: expected two different names, got {names[0]!r} twice")
    first, second = (array(inputs.name(name, "name of an array"), *sizes) for name in names)
    values = [inputs.exact(x, what) for what, pair in (("mean", means), ("deviation", deviations)) for x in pair]
    values.append(inputs.exact(correlation, "correlation"))
    if (1 - values[4] ** 2).is_negative:
        raise InputError(f"correlation: expected a number from -1 to 1, got {correlation}")
    if any(value.is_negative for value in values[2:4]):
        raise InputError(f"deviations: expected numbers of at least 0, got {deviations}")
    law = RandomEntries((first, second), GaussianPair((values[0], values[1]), (values[2], values[3]), values[4]))
    return (
        Array(sizes, lambda *i: first[i], (law,)),
        Array(sizes, lambda *i: second[i], (law,)),
    )
