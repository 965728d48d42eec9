"""The language of public statements: SymPy, and the few makers and one node it lacks.

Guarantees: arrays carry their shape, indices and sizes are integers, sums have inclusive symbolic ranges, and
`Diff` is an opaque node that SymPy never evaluates (its own Derivative returns 0 for what it doesn't see through).
Does not: prove anything.

>>> n, d_k = size("n"), size("d_k")
>>> i, j, c = index("i"), index("j"), index("c")
>>> Q, K = array("Q", n, d_k), array("K", n, d_k)
>>> total(Q[i, c] * K[j, c], c, d_k)
Sum(K[j, c]*Q[i, c], (c, 0, d_k - 1))
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError


def size(name: str) -> Any:
    """A symbolic size: a non-negative integer symbol."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


def index(name: str) -> Any:
    """An index: an integer symbol. Its range is that of its sum, or an `InRange` assumption when it is free."""
    return sympy.Symbol(name, integer=True)


def scalar(name: str, *, positive: bool = False) -> Any:
    """A real scalar."""
    return sympy.Symbol(name, positive=True) if positive else sympy.Symbol(name, real=True)


def array(name: str, *shape: Any) -> Any:
    """A real array of symbolic shape; entries are `array[i, j]`, indices counted from 0."""
    return sympy.IndexedBase(name, shape=shape, real=True)


def total(body: Any, binder: Any, count: Any) -> Any:
    """Sum of body over binder = 0 … count − 1. Raises StatementError for text, which SymPy would evaluate."""
    for part in (body, binder, count):
        if isinstance(part, str):
            raise StatementError(f"{part!r} is text: expected a SymPy expression, as index('i') or size('n')")
    return sympy.Sum(body, (binder, 0, count - 1))


class Diff(sympy.Expr):
    """The partial derivative of an expression by one entry of an array, unevaluated: Diff(expr, X[a, b]).

    Every entry of the array that is not the one named is held fixed; the indices of the entry are free indices,
    and a binder of the same name inside `expr` is another index.
    """

    def __new__(cls, expr: Any, entry: Any) -> Diff:
        return sympy.Expr.__new__(cls, sympy.sympify(expr, strict=True), entry)

    @property
    def expr(self) -> Any:
        return self.args[0]

    @property
    def entry(self) -> Any:
        return self.args[1]

    def _sympystr(self, printer: Any) -> str:
        return f"d({printer.doprint(self.expr)})/d({printer.doprint(self.entry)})"
