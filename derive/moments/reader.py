"""Reading a SymPy expression as a polynomial in connected pieces of indexed arrays.

Guarantees: every `Sum` gets binders of its own, each time it is used, so that nothing is captured; a sum must run
over the whole of the axes its binder stands on; what is not understood is a StatementError, never dropped.
Does not: take expectations.

A *piece* is a product of array entries that hang together by summed indices, as Σ_c q_c k_c. Summed indices of a
piece are numbered 0, 1, …; a free index (a row label) is kept as the SymPy object it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import sympy

from derive.errors import StatementError


@dataclass(frozen=True)
class Factor:
    """One entry of an array. indices: a Python int is a summed index, a SymPy object a free one."""

    array: Any
    indices: tuple[Any, ...]


@dataclass(frozen=True)
class Piece:
    """Factors that hang together; sizes[b] is the number of values of summed index b."""

    factors: tuple[Factor, ...]
    sizes: tuple[Any, ...]


# A product of pieces, as a set of (piece, multiplicity); a polynomial maps products to coefficients.
Product = frozenset[tuple[Piece, int]]
Polynomial = dict[Product, Any]


@dataclass(frozen=True)
class _Raw:
    """One term while it is being read: binders still have numbers unique to the whole reading."""

    coefficient: Any
    factors: tuple[Factor, ...]
    sizes: tuple[tuple[int, Any], ...]


def read(expr: Any) -> Polynomial:
    """The expression as a polynomial in pieces. Raises StatementError for what it can't read."""
    expr = sympy.sympify(expr, strict=True)
    if isinstance(expr, sympy.Add):
        return _added(read(a) for a in expr.args)
    if isinstance(expr, sympy.Mul):
        result: Polynomial = {frozenset(): sympy.S.One}
        for a in expr.args:
            result = _multiplied(result, read(a))
        return result
    if isinstance(expr, sympy.Pow) and _natural(expr.exp) and not _is_scalar(expr):
        return power(read(expr.base), int(expr.exp))
    return _added(_split(raw) for raw in _read_term(expr, {}, count()))


def power(base: Polynomial, exponent: int) -> Polynomial:
    """A polynomial in pieces to a natural power."""
    result: Polynomial = {frozenset(): sympy.S.One}
    for _ in range(exponent):
        result = _multiplied(result, base)
    return result


def _added(parts: Iterator[Polynomial]) -> Polynomial:
    total: Polynomial = {}
    for part in parts:
        for product, value in part.items():
            total[product] = total.get(product, sympy.S.Zero) + value
    return total


def _multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for p, x in a.items():
        for q, y in b.items():
            merged = dict(p)
            for piece, times in q:
                merged[piece] = merged.get(piece, 0) + times
            key = frozenset(merged.items())
            total[key] = total.get(key, sympy.S.Zero) + x * y
    return total


def _natural(exponent: Any) -> bool:
    return bool(exponent.is_Integer) and int(exponent) >= 0


def _is_scalar(expr: Any) -> bool:
    return not expr.has(sympy.Indexed, sympy.IndexedBase, sympy.Sum)


def _read_term(expr: Any, binders: Mapping[Any, int], fresh: Iterator[int]) -> list[_Raw]:
    """Read below open binders: {symbol: number}. Each call numbers the sums it meets anew."""
    if isinstance(expr, sympy.Indexed):
        indices = tuple(_index(i, binders) for i in expr.indices)
        return [_Raw(sympy.S.One, (Factor(expr.base, indices),), ())]
    if isinstance(expr, sympy.Sum):
        return _read_sum(expr, binders, fresh)
    if _is_scalar(expr):
        if expr.free_symbols & set(binders):
            raise StatementError(f"{expr}: a summed index may stand only as the index of an array here")
        return [_Raw(expr, (), ())]
    if isinstance(expr, sympy.Add):
        return [raw for a in expr.args for raw in _read_term(a, binders, fresh)]
    if isinstance(expr, sympy.Mul):
        return _product([(a, 1) for a in expr.args], binders, fresh)
    if isinstance(expr, sympy.Pow) and _natural(expr.exp):
        return _product([(expr.base, int(expr.exp))], binders, fresh)
    raise StatementError(
        f"{type(expr).__name__} of arrays can't be read here: expected sums, products, natural powers of entries"
    )


def _product(factors: list[tuple[Any, int]], binders: Mapping[Any, int], fresh: Iterator[int]) -> list[_Raw]:
    result = [_Raw(sympy.S.One, (), ())]
    for expr, times in factors:
        for _ in range(times):
            right = _read_term(expr, binders, fresh)
            result = [
                _Raw(a.coefficient * b.coefficient, a.factors + b.factors, a.sizes + b.sizes)
                for a in result
                for b in right
            ]
    return result


def _read_sum(expr: Any, binders: Mapping[Any, int], fresh: Iterator[int]) -> list[_Raw]:
    opened = dict(binders)
    sizes = []
    # SymPy lists the innermost limit first; an inner binder hides an outer one of the same name.
    for limit in reversed(expr.limits):
        if len(limit) != 3 or limit[1] != 0:
            raise StatementError(f"sum over {limit}: expected (binder, 0, size - 1)")
        symbol, _, last = limit
        size = last + 1
        if size.free_symbols & set(opened):
            raise StatementError(f"sum over {symbol}: its size {size} depends on another summed index")
        opened[symbol] = next(fresh)
        sizes.append((opened[symbol], size))
    return [
        _Raw(raw.coefficient, raw.factors, tuple(sizes) + raw.sizes) for raw in _read_term(expr.function, opened, fresh)
    ]


def _index(index: Any, binders: Mapping[Any, int]) -> Any:
    if index in binders:
        return binders[index]
    if index.is_Integer or (index.is_Symbol and index.is_integer):
        return index
    raise StatementError(f"index {index}: expected an index symbol or an integer")


def _split(raw: _Raw) -> Polynomial:
    sizes = dict(raw.sizes)
    _check_axes(raw.factors, sizes)
    return in_pieces(raw.coefficient, raw.factors, sizes)


def in_pieces(coefficient: Any, factors: tuple[Factor, ...], sizes: Mapping[int, Any]) -> Polynomial:
    """One term as a product of its connected pieces; a binder that nothing uses gives its size."""
    leader = {b: b for b in sizes}

    def find(b: int) -> int:
        while leader[b] != b:
            b = leader[b]
        return b

    for factor in factors:
        bound = [i for i in factor.indices if isinstance(i, int)]
        for b in bound[1:]:
            leader[find(b)] = find(bound[0])
    members: dict[Any, list[Factor]] = {}
    for number, factor in enumerate(factors):
        first = next((i for i in factor.indices if isinstance(i, int)), None)
        members.setdefault(("alone", number) if first is None else find(first), []).append(factor)
    used = {i for f in factors for i in f.indices if isinstance(i, int)}
    coefficient = coefficient * sympy.Mul(*(size for b, size in sizes.items() if b not in used))
    pieces: dict[Piece, int] = {}
    for together in members.values():
        piece = _renumbered(together, sizes)
        pieces[piece] = pieces.get(piece, 0) + 1
    return {frozenset(pieces.items()): coefficient}


def _renumbered(factors: list[Factor], sizes: Mapping[int, Any]) -> Piece:
    numbers: dict[int, int] = {}
    ordered = sorted(factors, key=lambda f: (str(f.array), tuple(str(i) for i in f.indices if not isinstance(i, int))))
    renamed = []
    for factor in ordered:
        indices = tuple(numbers.setdefault(i, len(numbers)) if isinstance(i, int) else i for i in factor.indices)
        renamed.append(Factor(factor.array, indices))
    return Piece(tuple(renamed), tuple(sizes[b] for b in numbers))


def _check_axes(factors: tuple[Factor, ...], sizes: Mapping[int, Any]) -> None:
    for factor in factors:
        shape = factor.array.shape
        if shape is None or len(shape) != len(factor.indices):
            raise StatementError(
                f"{factor.array}: expected an array with a shape of {len(factor.indices)} axes, got {shape}"
            )
        for index, extent in zip(factor.indices, shape, strict=True):
            if isinstance(index, int) and sizes[index] != extent:
                raise StatementError(
                    f"{factor.array} has an axis of {extent}, but is summed over {sizes[index]} values there"
                )
