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
    """A symbolic size: a non-negative integer symbol. Raises StatementError for a name that is no text, or empty."""
    return sympy.Symbol(_name(name, "size('n')"), integer=True, nonnegative=True)


def index(name: str) -> Any:
    """An index: an integer symbol. Its range is that of its sum, or an `InRange` assumption when it is free.

    Raises StatementError for a name that is no text, or empty.
    """
    return sympy.Symbol(_name(name, "index('i')"), integer=True)


def scalar(name: str, *, positive: bool = False) -> Any:
    """A real scalar. Raises StatementError for a name that is no text, or empty."""
    name = _name(name, "scalar('s')")
    return sympy.Symbol(name, positive=True) if positive else sympy.Symbol(name, real=True)


class Array(sympy.IndexedBase):
    """A SymPy IndexedBase that says in words what is wrong with an index; made by `array`."""

    @classmethod
    def class_key(cls) -> Any:
        return sympy.IndexedBase.class_key()  # so that a sum prints its terms in the order of SymPy's own arrays

    def __getitem__(self, indices: Any, **rest: Any) -> Any:
        places = tuple(indices) if isinstance(indices, (tuple, list, sympy.Tuple)) else (indices,)
        axes = len(self.shape or ())
        if axes and len(places) != axes:
            told = ", ".join(map(str, self.shape))
            mend = ", ".join((*map(str, places), *"ijklabc")[:axes])
            raise StatementError(
                f"{self}[{', '.join(map(str, places))}] has {len(places)} indices: expected {axes}, {self} being of "
                f"shape ({told}), as {self}[{mend}]"
            )
        for place in places:
            _whole(place, f"an index of {self}", "index('i')")
        return super().__getitem__(places if len(places) != 1 else places[0], **rest)


def array(name: str, *shape: Any) -> Any:
    """A real array of symbolic shape; entries are `array[i, j]`, indices counted from 0.

    Raises StatementError for a name that is no text, or empty, and for an axis that is no whole number ≥ 0; an entry
    with another number of indices than axes is one too.
    """
    name = _name(name, "array('x', n)")
    for axis in shape:
        _count(axis, f"an axis of {name}")
    return Array(name, shape=shape, real=True)


def total(body: Any, binder: Any, count: Any) -> Any:
    """Sum of body over binder = 0 … count − 1.

    Raises StatementError for text, which SymPy would evaluate, for a binder that is no index, and for a count that is
    no whole number ≥ 0.
    """
    for part in (body, binder, count):
        if isinstance(part, str):
            raise StatementError(f"{part!r} is text: expected a SymPy expression, as index('i') or size('n')")
    if not isinstance(binder, sympy.Symbol):
        raise StatementError(f"binder is {binder!r}: expected an index, as total(x[i], i, n) with i = index('i')")
    _count(count, "count")
    return sympy.Sum(body, (binder, 0, count - 1))


def _name(name: Any, mend: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise StatementError(f"the name is {name!r}: expected text that isn't empty, as {mend}")
    return name


def _count(value: Any, what: str) -> None:
    """Raises StatementError for what is known to be no number of terms."""
    if _whole(value, what, "size('n') or 4").is_negative:
        raise StatementError(f"{what} is {value}: expected a whole number ≥ 0, as size('n') or 4")


def _whole(value: Any, what: str, mend: str) -> Any:
    """The value as SymPy has it. Raises StatementError for what is known to be no whole number."""
    try:
        number = None if isinstance(value, (bool, str)) else sympy.sympify(value, strict=True)
    except (sympy.SympifyError, TypeError):
        number = None
    if not isinstance(number, sympy.Expr) or number.is_integer is False:
        raise StatementError(f"{what} is {value!r}: expected a whole number, as {mend}")
    return number


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
