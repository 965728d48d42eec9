"""The arguments of `derive.prove`, read: sides, conditions, relation and names of arrays.

Guarantees: what isn't of the kind expected is a StatementError that names the argument, says what was got and what to
write instead; nothing is passed over, and text is never evaluated.
Does not: look at what a statement says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from derive.assumptions import (
    Assumption,
    AtLeast,
    Defined,
    Distinct,
    FixedArray,
    InRange,
    Ordered,
    Positive,
    RandomEntries,
    ZeroOne,
)
from derive.errors import StatementError
from derive.step import RELATIONS

_EXPRESSIONS: dict[type, tuple[str, ...]] = {
    InRange: ("index", "lower", "upper"),
    AtLeast: ("size", "least"),
    Positive: ("expr",),
    Ordered: ("lower", "middle", "upper"),
    Distinct: ("first", "second"),
    Defined: ("body",),
}
_KINDS = (*_EXPRESSIONS, ZeroOne, RandomEntries, FixedArray)


def expression(side: Any, name: str) -> Any:
    """A side of a statement, or a part of a condition, as a SymPy expression."""
    if isinstance(side, sympy.logic.boolalg.Boolean) and not isinstance(side, sympy.Expr):
        raise StatementError(f"{name} is {side}: expected an expression; give the two sides apart, as prove(lhs, rhs)")
    if isinstance(side, (bool, float)):
        raise StatementError(f"{name} is {side!r}: expected an exact number, as sympy.Rational(1, 2), or an expression")
    try:
        value = sympy.sympify(side, strict=True)
    except (sympy.SympifyError, TypeError) as error:
        kind = type(side).__name__
        text = f"{name}: {side!r} is a {kind}: expected a SymPy expression (text is never evaluated)"
        raise StatementError(text) from error
    whole = (sympy.MatrixBase, sympy.MatrixExpr, sympy.IndexedBase)
    if not isinstance(value, sympy.Expr) or isinstance(value, whole):
        kind = type(side).__name__
        raise StatementError(
            f"{name} is a {kind}: expected a SymPy expression of one entry, as total(A[i, k] * B[k, j], k, n) for a "
            "product of matrices"
        )
    return value


def conditions(assumptions: Any) -> tuple[Assumption, ...]:
    """Side conditions as data. Raises StatementError for words, which no checker reads."""
    if isinstance(assumptions, _KINDS):
        raise StatementError(
            f"assumptions is one {type(assumptions).__name__}: expected a sequence, as [{assumptions!r}]"
        )
    if isinstance(assumptions, str) or not isinstance(assumptions, Iterable):
        got = f"{assumptions!r}, a {type(assumptions).__name__}"
        raise StatementError(f"assumptions is {got}: expected a sequence of conditions, as [AtLeast(n, 1)]")
    found = tuple(assumptions)
    for number, one in enumerate(found, 1):
        if isinstance(one, str):
            raise StatementError(
                f"assumption {number} is in words: {one!r}. No checker reads words: state it as data of "
                "derive.assumptions, as AtLeast(n, 1) or InRange(i, 0, n - 1), or leave it out. (A claim may carry "
                "words; they are printed, prove nothing, and leave nothing refuted.)"
            )
        if not isinstance(one, _KINDS):
            raise StatementError(
                f"assumption {one!r} is a {type(one).__name__}: expected one of derive.assumptions, as "
                "InRange(i, 0, n - 1) or AtLeast(n, 1)"
            )
        _check(one)
    return tuple(Positive(expression(one.expr, "Positive.expr")) if isinstance(one, Positive) else one for one in found)


def _check(one: Any) -> None:
    where = type(one).__name__
    for name in _EXPRESSIONS.get(type(one), ()):
        expression(getattr(one, name), f"{where}.{name}")
    if isinstance(one, Positive) and (value := expression(one.expr, where)).is_number and value.is_positive is False:
        raise StatementError(
            f"Positive({value}): {value} is a number that can't be positive, and nothing meets the condition; "
            "expected an expression with a symbol, as Positive(s), or leave the condition out"
        )
    if isinstance(one, InRange) and not isinstance(one.index, sympy.Symbol):
        raise StatementError(f"InRange.index is {one.index!r}: expected an index, as index('i')")
    if isinstance(one, Defined):
        if not isinstance(one.indices, tuple) or not all(isinstance(i, sympy.Symbol) for i in one.indices):
            raise StatementError(f"Defined.indices is {one.indices!r}: expected a tuple of indices, as (i, j) or ()")
        _array(one.array, "Defined.array")
    if isinstance(one, (ZeroOne, FixedArray)):
        _array(one.array, f"{where}.array")
    if isinstance(one, RandomEntries):
        for array in one.arrays:
            _array(array, "RandomEntries.arrays")


def _array(array: Any, name: str) -> None:
    if not isinstance(array, (sympy.IndexedBase, sympy.Symbol, str)):
        raise StatementError(f"{name} is {array!r}, a {type(array).__name__}: expected an array, as array('x', n)")


def known_relation(relation: Any) -> None:
    """Raises StatementError unless the relation is one of those a statement may have."""
    if relation not in RELATIONS:
        raise StatementError(f"relation is {relation!r}: expected one of {', '.join(RELATIONS)}")


def array_names(opaque: Any) -> tuple[str, ...]:
    """Names of arrays that are kept as they are."""
    if isinstance(opaque, str) or not isinstance(opaque, Iterable):
        raise StatementError(f"opaque is {opaque!r}: expected a sequence of names of arrays, as ('alpha',)")
    names = tuple(opaque)
    for name in names:
        if not isinstance(name, str):
            raise StatementError(
                f"opaque holds {name!r}, a {type(name).__name__}: expected names of arrays, as 'alpha'"
            )
    return names
