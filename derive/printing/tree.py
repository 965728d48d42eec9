"""The operation tree of an expression: plain data that can be stored, sent, and turned into a function.

Guarantees: every node is one of the operations listed in `OPERATIONS`; names are identifiers; abbreviations are opened
and binders renamed apart, so the tree stands alone. Its value is the expression's, in exact arithmetic.
Does not: evaluate anything, or differentiate: a `Diff` has no tree; print the side that has none.

    {"version": 1, "inputs": [{"name", "axes"}], "output": [[index, size]], "body": EXPR}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy

from derive.assumptions import Defined, InRange
from derive.errors import StatementError
from derive.printing.names import array_name

Expr = list[Any]
OPERATIONS = frozenset(
    {"num", "const", "sym", "at", "add", "mul", "pow", "exp", "log", "sqrt", "tanh", "abs", "erf", "gamma"}
    | {"loggamma", "digamma", "max", "min", "sum", "product", "delta", "where"}
)
_CONSTANTS = {sympy.pi: "pi", sympy.E: "e", sympy.EulerGamma: "euler_gamma"}
_UNARY = {
    sympy.exp: "exp",
    sympy.log: "log",
    sympy.tanh: "tanh",
    sympy.Abs: "abs",
    sympy.erf: "erf",
    sympy.gamma: "gamma",
    sympy.loggamma: "loggamma",
    sympy.digamma: "digamma",
}
_MANY = {sympy.Max: "max", sympy.Min: "min"}


def operation_tree(
    expr: Any, output: Sequence[Any] = (), assumptions: Iterable[Any] = (), *, inputs: Sequence[str] = ()
) -> dict[str, Any]:
    """The tree of an expression, or of a claim's right side (then its assumptions are taken too).

    output: the free indices that become the output's axes, in order; each needs its `InRange`. inputs: names in the
    order wanted; by default arrays by name and then scalars by name. Raises StatementError for what has no tree.

    >>> from derive.language import array, index, size, total
    >>> n, i = size("n"), index("i")
    >>> operation_tree(total(array("x", n)[i], i, n))["body"]
    ['sum', 'i', ['num', 0, 1], ['add', ['num', -1, 1], ['sym', 'n']], ['at', 'x', [['sym', 'i']]]]
    """
    if hasattr(expr, "rhs") and hasattr(expr, "assumptions"):
        assumptions = (*expr.assumptions, *assumptions)
        expr = expr.rhs
    builder = _Builder(tuple(assumptions))
    body_expr = sympy.sympify(expr, strict=True)
    scope = {ix: ["sym", identifier(ix.name)] for ix in output}
    builder.used |= {identifier(ix.name) for ix in output}
    axes = [[identifier(ix.name), builder.extent(ix)] for ix in output]
    body = builder.build(body_expr, scope)
    loose = [ix for ix in builder.free if ix.is_integer and not ix.is_nonnegative]
    if loose:
        names = ", ".join(sorted(x.name for x in loose))
        raise StatementError(f"the index {names} is free and not among the output: name it there or sum over it")
    return {"version": 1, "inputs": builder.inputs(inputs), "output": axes, "body": body}


def identifier(name: str) -> str:
    """A name as a plain identifier: S' → S_prime, K^T → K_T."""
    plain = name.replace("'", "_prime").replace("^", "_")
    if not plain.isidentifier():
        raise StatementError(f"the name {name!r} can't become an identifier: rename the symbol")
    return plain


class _Builder:
    def __init__(self, assumptions: tuple[Any, ...]) -> None:
        self.definitions = {array_name(a.array): a for a in assumptions if isinstance(a, Defined)}
        self.ranges = {a.index: a for a in assumptions if isinstance(a, InRange)}
        self.arrays: dict[str, Any] = {}
        self.free: set[Any] = set()
        self.used: set[str] = set()

    # ---- the head -------------------------------------------------------------------------------------------------

    def extent(self, ix: Any) -> Any:
        known = self.ranges.get(ix)
        if known is None or known.lower != 0:
            raise StatementError(f"the output index {ix} needs InRange({ix}, 0, size − 1)")
        count = sympy.sympify(known.upper, strict=True) + 1
        return self._size(count)

    def _size(self, count: Any) -> Any:
        if isinstance(count, sympy.Symbol):
            self.free.add(count)
            return identifier(count.name)
        return self.build(count, {})

    def inputs(self, order: Sequence[str]) -> list[dict[str, Any]]:
        table: dict[str, list[Any]] = {}
        carried: set[str] = set()
        for name in sorted(self.arrays):
            axes = []
            for extent in self.arrays[name].shape:
                if not isinstance(extent, sympy.Symbol):
                    raise StatementError(f"an axis of {name} is {extent}: the axes of an input are plain sizes")
                axes.append(identifier(extent.name))
            table[identifier(name)] = axes
            carried |= set(axes)
        for symbol in sorted(self.free, key=lambda s: s.name):
            name = identifier(symbol.name)
            if name in table:
                raise StatementError(f"an array and a scalar are both named {name}")
            if name not in carried:
                table[name] = []
        unknown = set(order) - set(table)
        if unknown:
            raise StatementError(f"no input is named {', '.join(sorted(unknown))}; inputs are {', '.join(table)}")
        names = [*order, *(x for x in table if x not in order)]
        return [{"name": name, "axes": table[name]} for name in names]

    # ---- the body -------------------------------------------------------------------------------------------------

    def build(self, expr: Any, scope: Mapping[Any, Expr]) -> Expr:
        if expr.is_Rational:
            return ["num", int(expr.p), int(expr.q)]
        if expr in _CONSTANTS:
            return ["const", _CONSTANTS[expr]]
        if isinstance(expr, sympy.Symbol):
            if expr in scope:
                return scope[expr]
            self.free.add(expr)
            return ["sym", identifier(expr.name)]
        if isinstance(expr, sympy.Indexed):
            return self._entry(expr, scope)
        if expr.is_Add or expr.is_Mul:
            return ["add" if expr.is_Add else "mul", *(self.build(x, scope) for x in expr.args)]
        if expr.is_Pow and not isinstance(expr, sympy.exp):
            if expr.exp == sympy.Rational(1, 2):
                return ["sqrt", self.build(expr.base, scope)]
            return ["pow", self.build(expr.base, scope), self.build(expr.exp, scope)]
        if type(expr) in _UNARY:
            return [_UNARY[type(expr)], self.build(expr.args[0], scope)]
        if type(expr) in _MANY:
            return [_MANY[type(expr)], *(self.build(x, scope) for x in sorted(expr.args, key=sympy.default_sort_key))]
        if isinstance(expr, (sympy.Sum, sympy.Product)):
            return self._reduction(expr, scope)
        if isinstance(expr, sympy.KroneckerDelta):
            return ["delta", *(self.build(x, scope) for x in expr.args[:2])]
        if isinstance(expr, sympy.Piecewise):
            return self._where(expr, scope)
        raise StatementError(f"{type(expr).__name__} has no operation in {expr}")

    def _entry(self, expr: Any, scope: Mapping[Any, Expr]) -> Expr:
        name = array_name(expr.base)
        indices = [self.build(x, scope) for x in expr.indices]
        definition = self.definitions.get(name)
        if definition is not None:
            inner = dict(zip(definition.indices, indices, strict=True))
            return self.build(sympy.sympify(definition.body, strict=True), inner)
        if expr.base.shape is None:
            raise StatementError(f"the array {name} has no shape: make it with array(name, sizes…)")
        if all(extent == 1 for extent in expr.base.shape):  # one entry: a scalar in the tree
            self.free.add(sympy.Symbol(name, real=True))
            return ["sym", identifier(name)]
        if self.arrays.setdefault(name, expr.base) != expr.base:
            raise StatementError(f"two different arrays are named {name}")
        return ["at", identifier(name), indices]

    def _reduction(self, expr: Any, scope: Mapping[Any, Expr]) -> Expr:
        inner = dict(scope)
        opened = []
        for limit in reversed(expr.limits):
            if len(limit) != 3:
                raise StatementError(f"a sum without a range in {expr}")
            binder, low, high = limit
            ends = (self.build(low, inner), self.build(high, inner))
            name = self._binder(binder.name)
            inner[binder] = ["sym", name]
            opened.append((name, *ends))
        body = self.build(expr.function, inner)
        for name, first, last in reversed(opened):
            body = ["sum" if isinstance(expr, sympy.Sum) else "product", name, first, last, body]
        return body

    def _binder(self, name: str) -> str:
        """A name that nothing else in the tree has."""
        base = identifier(name)
        choice, k = base, 1
        while choice in self.used or choice in self.arrays:
            k += 1
            choice = f"{base}_{k}"
        self.used.add(choice)
        return choice

    def _where(self, expr: Any, scope: Mapping[Any, Expr]) -> Expr:
        *rows, (last, condition) = expr.args
        if condition != sympy.true:
            raise StatementError(f"{expr} leaves a case open: end it with (value, True)")
        tree = self.build(last, scope)
        for value, test in reversed(rows):
            tree = ["where", self._condition(test, scope), self.build(value, scope), tree]
        return tree

    def _condition(self, test: Any, scope: Mapping[Any, Expr]) -> Expr:
        if isinstance(test, (sympy.And, sympy.Or)):
            word = "and" if isinstance(test, sympy.And) else "or"
            return [word, *(self._condition(x, scope) for x in sorted(test.args, key=sympy.default_sort_key))]
        if isinstance(test, sympy.Not):
            return ["not", self._condition(test.args[0], scope)]
        left, right = self.build(test.lhs, scope), self.build(test.rhs, scope)
        sign = test.rel_op
        if sign in ("<", "<="):
            return ["lt" if sign == "<" else "le", left, right]
        if sign in (">", ">="):
            return ["lt" if sign == ">" else "le", right, left]
        equal = ["eq", left, right]
        return equal if sign == "==" else ["not", equal]
