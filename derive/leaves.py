"""The leaves of a statement: symbols, index expressions and array entries, each checked as it is read.

Guarantees: one name is one thing; every index is bound or has a range; every entry is shown to lie inside its array.
Does not: read sums, functions or side conditions (`derive.importer`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sympy

from derive.errors import StatementError
from derive.index import Facts, Ix
from derive.signs import Environment
from derive.terms import Atom, Poly

_NAME = re.compile(r"[^\W\d][\w'^]*\Z")
Scope = Mapping[Any, Ix]


class Leaves:
    """Symbols and arrays met so far, under one environment. ranged: free indices and their limits."""

    def __init__(self, env: Environment, ranged: Mapping[Any, tuple[Any, Any]]) -> None:
        self.env = env
        self.ranged = dict(ranged)
        self.symbols: dict[str, Any] = {}
        self.arrays: dict[str, Any] = {}

    @property
    def facts(self) -> Facts:
        """What is known of the free variables: the assumptions, and that sizes are not negative."""
        sizes = [Ix.var(n) for n, s in self.symbols.items() if s.is_integer and s.is_nonnegative]
        sizes += [Ix.var(n).plus(-1) for n, s in self.symbols.items() if s.is_integer and s.is_positive]
        self.env.facts = self.env.facts.given(sizes)
        return self.env.facts

    def declare(self, *exprs: Any) -> None:
        """Meet the symbols of several expressions before any of them is read."""
        for expr in exprs:
            self._declare(sympy.sympify(expr, strict=True))

    def _declare(self, expr: Any) -> None:
        """Meet all free symbols first, so that every size is known not to be negative from the start."""
        for symbol in sorted(getattr(expr, "free_symbols", ()), key=str):
            if isinstance(symbol, sympy.Symbol) and symbol.is_integer and symbol.is_nonnegative:
                self.symbol_name(symbol)
        for base in expr.atoms(sympy.IndexedBase) if isinstance(expr, sympy.Basic) else ():
            for extent in base.shape or ():
                for symbol in extent.free_symbols:
                    self.symbol_name(symbol)

    def symbol_name(self, symbol: Any) -> str:
        known = self.symbols.setdefault(symbol.name, symbol)
        if known != symbol:
            raise StatementError(f"two different symbols are named {symbol.name}: give each a name of its own")
        check_name(symbol.name)
        if symbol.name in self.arrays:
            raise StatementError(f"a symbol and an array are both named {symbol.name}: rename one")
        if symbol.is_positive and not symbol.is_integer:
            self.env.positive |= {symbol.name}
        elif symbol.is_nonzero and not symbol.is_integer:
            self.env.nonzero |= {symbol.name}
        return str(symbol.name)

    def symbol(self, symbol: Any) -> Poly:
        self._check_bound(symbol, symbol)
        if not symbol.is_real:
            raise StatementError(f"the symbol {symbol} is not real: make it with scalar(), size() or index()")
        return Poly.atom(Atom("var", self.symbol_name(symbol)))

    def _check_bound(self, symbol: Any, where: Any) -> None:
        if symbol.is_integer and not symbol.is_nonnegative and symbol not in self.ranged:
            raise StatementError(f"unbound index {symbol} in {where}: sum over it, or state InRange({symbol}, …)")

    def ix(self, expr: Any, scope: Scope, where: Any) -> Ix:
        """An index expression: an integer polynomial in indices and sizes."""
        if expr.is_Integer:
            return Ix.const(int(expr))
        if isinstance(expr, sympy.Symbol):
            if expr in scope:
                return scope[expr]
            if not expr.is_integer:
                raise StatementError(f"{expr} is used as an index in {where} and is not an integer")
            self._check_bound(expr, where)
            return Ix.var(self.symbol_name(expr))
        if expr.is_Add:
            total = Ix(())
            for a in expr.args:
                total = total + self.ix(a, scope, where)
            return total
        if expr.is_Mul or (expr.is_Pow and expr.exp.is_Integer and expr.exp > 0):
            factors = expr.args if expr.is_Mul else [expr.base] * int(expr.exp)
            product = Ix.const(1)
            for a in factors:
                product = product.times(self.ix(a, scope, where))
            return product
        raise StatementError(f"unsupported index {expr} in {where}: indices are integer polynomials")

    def indices(self, expr: Any, scope: Scope, facts: Facts) -> tuple[Ix, ...]:
        base = expr.base
        shape = base.shape
        name = base_name(base)
        if shape is None:
            raise StatementError(f"the array {name} in {expr} has no shape: make it with array(name, sizes…)")
        check_name(name)
        known = self.arrays.setdefault(name, base)
        if known != base or name in self.symbols:
            raise StatementError(f"two different things are named {name}: give each a name of its own")
        if len(shape) != len(expr.indices):
            raise StatementError(f"{expr} has {len(expr.indices)} indices, and {name} has {len(shape)} axes")
        found = []
        extents = [self.ix(sympy.sympify(extent, strict=True), {}, base) for extent in shape]
        local = facts.given(self.facts.bounds)
        for value, extent, size in zip(expr.indices, extents, shape, strict=True):
            place = self.ix(value, scope, expr)
            if not (local.implies(place) and local.implies((extent - place).plus(-1))):
                raise StatementError(
                    f"mixed sizes: index {value} of {expr} is not known to lie in 0 … {size - 1}; "
                    "check the range of the index against the shape of the array"
                )
            found.append(place)
        return tuple(found)

    def entry(self, expr: Any, scope: Scope, facts: Facts) -> Poly:
        return Poly.atom(Atom("at", base_name(expr.base), self.indices(expr, scope, facts)))


def check_name(name: str) -> None:
    if not _NAME.match(name):
        raise StatementError(f"{name!r} is no name here: use letters, digits, _ and ' after a first letter")


def base_name(base: Any) -> str:
    return str(getattr(base, "label", base))
