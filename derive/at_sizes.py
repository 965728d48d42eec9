"""Evaluates a SymPy statement at concrete sizes, over any arithmetic: the common reader of the modular checker and of
interval refutation.

Guarantees: an empty range is an empty sum (never Karr's convention); a binder shadows every outer symbol of its name;
an abbreviation is opened at the indices it is asked for, in the global scope only, so nothing can be captured; a
`Diff` is an exact partial derivative by a seed of its own on the one entry it names. An entry outside the shape of
its array, a range of negative length and an unknown function are errors that name the sub-expression.
Does not: simplify, reorder or compare expressions, and shares no code with the first checker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import sympy

from derive import jets
from derive.assumptions import Defined
from derive.errors import StatementError
from derive.instances import Statement, free_symbols, holds, integer, label_of
from derive.language import Diff


class Values(jets.Arithmetic, Protocol):
    """An arithmetic with the values of one draw."""

    splits_logs: bool

    def entry(self, label: str, place: tuple[int, ...]) -> Any: ...
    def scalar(self, symbol: Any) -> Any: ...
    def constant(self, atom: Any) -> Any: ...
    def absolute(self, x: Any) -> Any: ...


class Unreadable(StatementError):
    """The statement holds a function or node that these checkers do not read; the message names it."""


@dataclass(frozen=True)
class _Info:
    """What the value of an expression depends on, besides the draw.

    scoped: indices it names itself, which a binder around it may shadow. opened: indices that the bodies of its
    abbreviations name, the indices of the instance whatever binders are in force. arrays: through abbreviations too.
    """

    scoped: tuple[Any, ...]
    opened: tuple[Any, ...]
    arrays: frozenset[str]


_Seed = tuple[str, tuple[int, ...], int]


class Evaluator:
    """Evaluates expressions of one statement at one instance."""

    def __init__(self, statement: Statement, sizes: Mapping[Any, int], ops: Values) -> None:
        self.statement = statement
        self.globals = dict(sizes)
        self.ops = ops
        self.zero = ops.lift(Fraction(0))
        self._info: dict[Any, _Info] = statement.facts
        self._memo: dict[Any, Any] = {}
        self._opening: set[tuple[str, tuple[int, ...]]] = set()

    def value(self, expr: Any) -> Any:
        """The value of a side. Raises StatementError or whatever the arithmetic raises (a division by zero, say)."""
        return self._eval(expr, {}, ())

    def value_at(self, expr: Any, indices: Mapping[Any, int]) -> Any:
        """The value where some ranged free indices have other values than those of the instance."""
        kept = self.globals
        self.globals = {**kept, **indices}
        try:
            return self.value(expr)
        finally:
            self.globals = kept

    def _eval(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        if not expr.args:
            return self._atom(expr, env, seeds)
        info = self._info.get(expr) or self._facts(expr)
        place = tuple([env[s] if s in env else self.globals.get(s) for s in info.scoped])
        around = tuple([self.globals.get(s) for s in info.opened])
        key = (expr, place, around, tuple([s for s in seeds if s[0] in info.arrays]) if seeds else ())
        if key not in self._memo:
            self._memo[key] = self._node(expr, env, seeds)
        return self._memo[key]

    def _facts(self, expr: Any) -> _Info:
        """What the value of expr depends on, itself and through abbreviations."""
        if expr not in self._info:
            arrays: set[str] = set()
            opened: set[Any] = set()
            todo = [expr]
            while todo:
                for node in sympy.preorder_traversal(todo.pop()):
                    label = label_of(node) if isinstance(node, (sympy.IndexedBase, sympy.Symbol)) else None
                    named = isinstance(node, sympy.IndexedBase) or label in self.statement.definitions
                    if label is not None and named and label not in arrays:
                        arrays.add(label)
                        if label in self.statement.definitions:
                            definition = self.statement.definitions[label]
                            todo.append(definition.body)
                            opened |= free_symbols(definition.body) - set(definition.indices)
            movable = {r.index for r in self.statement.movable}
            scoped = free_symbols(expr) & (self.statement.binders | movable)
            ordered = tuple(sorted(scoped, key=str)), tuple(sorted(opened & movable, key=str))
            self._info[expr] = _Info(*ordered, frozenset(arrays))
        return self._info[expr]

    def _atom(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...] = ()) -> Any:
        if isinstance(expr, sympy.Rational):
            return self.ops.lift(Fraction(int(expr.p), int(expr.q)))
        if expr in env:
            return self.ops.lift(Fraction(env[expr]))
        if expr in self.globals:
            return self.ops.lift(Fraction(self.globals[expr]))
        if expr is sympy.E:
            return self.ops.function("exp", self.ops.lift(Fraction(1)))
        if isinstance(expr, sympy.NumberSymbol):
            return self.ops.constant(expr)
        if isinstance(expr, sympy.Symbol) and not expr.is_integer:
            if str(expr) in self.statement.definitions:
                return self._defined(self.statement.definitions[str(expr)], (), seeds)
            return self.ops.scalar(expr)
        raise Unreadable(f"{expr} ({type(expr).__name__}) can't be evaluated at sizes: use a size, an index in its "
                         "range, a real scalar or a rational number")  # fmt: skip

    def _node(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        method = _NODES.get(type(expr))
        if method is not None:
            return method(self, expr, env, seeds)
        raise Unreadable(f"unsupported function or node {type(expr).__name__} in {expr}")

    def _add(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        first, *rest = (self._eval(a, env, seeds) for a in expr.args)
        for x in rest:
            first = first + x
        return first

    def _mul(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        first, *rest = (self._eval(a, env, seeds) for a in expr.args)
        for x in rest:
            first = first * x
        return first

    def _pow(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        base, exponent = expr.args
        if base is sympy.E:
            return self._exp_of(self._eval(exponent, env, seeds))
        if not exponent.is_Rational:
            exponent = sympy.Integer(integer(exponent, {**self.globals, **env}))
        x = self._eval(base, env, seeds)
        if exponent.q != 1:
            x = jets.root(self.ops, x, int(exponent.q))
        power = int(exponent.p)
        if power < 0:
            x, power = jets.inverse(self.ops, x), -power
        return self._integer_power(x, power)

    def _integer_power(self, x: Any, power: int) -> Any:
        result = self.ops.lift(Fraction(1))
        square = x
        while power:
            if power & 1:
                result = result * square
            power >>= 1
            square = square * square if power else square
        return result

    def _exp_of(self, x: Any) -> Any:
        return jets.apply(x, jets.taylor_of(self.ops, "exp"), self.zero)

    def _exp(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        return self._exp_of(self._eval(expr.args[0], env, seeds))

    def _log(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        return self._log_of(expr.args[0], env, seeds)

    def _log_of(self, argument: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        """log of a product of positive factors as a sum of logs, where the arithmetic knows log by name only."""
        if self.ops.splits_logs:
            if isinstance(argument, sympy.exp):
                return self._eval(argument.args[0], env, seeds)
            if isinstance(argument, sympy.Pow) and argument.exp.is_Rational:
                return self._log_of(argument.base, env, seeds) * self._atom(argument.exp, env)
            if isinstance(argument, sympy.Mul) and not any(a.is_negative for a in argument.args):
                first, *rest = (self._log_of(a, env, seeds) for a in argument.args)
                for x in rest:
                    first = first + x
                return first
            if argument == 1:
                return self.zero
            if isinstance(argument, sympy.Indexed) and label_of(argument.base) in self.statement.definitions:
                label = label_of(argument.base)
                if not any(seed[0] == label for seed in seeds):
                    definition = self.statement.definitions[label]
                    place = [integer(at, {**self.globals, **env}) for at in argument.indices]
                    return self._log_of(definition.body, dict(zip(definition.indices, place, strict=True)), seeds)
        x = self._eval(argument, env, seeds)
        return jets.apply(x, jets.taylor_of(self.ops, "log"), self.zero)

    def _function(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        name = type(expr).__name__
        return jets.apply(self._eval(expr.args[0], env, seeds), jets.taylor_of(self.ops, name), self.zero)

    def _abs(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        x = self._eval(expr.args[0], env, seeds)
        if isinstance(x, jets.Jet):
            raise Unreadable(f"the derivative of {expr} is not defined everywhere")
        return self.ops.absolute(x)

    def _delta(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        if len(expr.args) != 2:
            raise StatementError(f"{expr} has a range, which is not read here: write KroneckerDelta(i, j)")
        values = {**self.globals, **env}
        return self.ops.lift(Fraction(int(integer(expr.args[0], values) == integer(expr.args[1], values))))

    def _piecewise(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        for body, condition in expr.args:
            if holds(condition, {**self.globals, **env}):
                return self._eval(body, env, seeds)
        raise StatementError(f"no case of {expr} applies at {show(self.globals)}")

    def _integer_valued(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        return self.ops.lift(Fraction(integer(expr, {**self.globals, **env})))

    def _indexed(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        values = {**self.globals, **env}
        place = tuple(integer(i, values) for i in expr.indices)
        label = label_of(expr.base)
        for axis, (at, length) in enumerate(zip(place, expr.base.shape or (), strict=False)):
            if not 0 <= at < integer(length, values):
                raise StatementError(
                    f"entry {expr} lies outside its array: index {expr.indices[axis]} = {at}, length {length} = "
                    f"{integer(length, values)} at {show(self.globals)}"
                )
        definition = self.statement.definitions.get(label)
        x = self.ops.entry(label, place) if definition is None else self._defined(definition, place, seeds)
        mine = [bit for name, at, bit in seeds if name == label and at == place]
        if mine:
            one = self.ops.lift(Fraction(1))
            x = jets.Jet({0: self.zero, **jets.parts_of(x)})
            for bit in mine:
                x = x + jets.Jet({1 << bit: one})
        return x

    def _defined(self, definition: Defined, place: tuple[int, ...], seeds: tuple[_Seed, ...]) -> Any:
        if len(place) != len(definition.indices):
            raise StatementError(f"{definition.array} is defined with {len(definition.indices)} indices, used with "
                                 f"{len(place)}")  # fmt: skip
        entry = (label_of(definition.array), place)
        if entry in self._opening:  # an earlier entry of the same array is a recursion, and has a value
            raise StatementError(f"{definition.array} is defined through itself at {place}")
        self._opening.add(entry)
        try:
            return self._eval(definition.body, dict(zip(definition.indices, place, strict=True)), seeds)
        finally:
            self._opening.remove(entry)

    def _diff(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        entry = expr.entry
        if not isinstance(entry, sympy.Indexed):
            raise StatementError(f"{expr}: differentiate by an entry of an array, not by {entry}")
        values = {**self.globals, **env}
        place = tuple(integer(i, values) for i in entry.indices)
        self._indexed(entry, env, ())  # an entry outside its array is an error, not a zero
        bit = max((s[2] for s in seeds), default=-1) + 1
        inner = self._eval(expr.expr, env, (*seeds, (label_of(entry.base), place, bit)))
        return jets.coefficient(inner, bit, self.zero)

    def _sum(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        total = self.zero
        for inner in self._ranges(expr, list(expr.limits), env):
            total = total + self._eval(expr.function, inner, seeds)
        return total

    def _product(self, expr: Any, env: Mapping[Any, int], seeds: tuple[_Seed, ...]) -> Any:
        result = self.ops.lift(Fraction(1))
        for inner in self._ranges(expr, list(expr.limits), env):
            result = result * self._eval(expr.function, inner, seeds)
        return result

    def _ranges(self, expr: Any, limits: list[Any], env: Mapping[Any, int]) -> Any:
        """All values of the binders; SymPy's last limit is the outermost."""
        if not limits:
            yield env
            return
        binder, first, last = limits[-1]
        values = {**self.globals, **env}
        low, high = integer(first, values), integer(last, values)
        if high < low - 1:
            raise StatementError(
                f"the range of {binder} in {expr} runs from {low} to {high} at {show(self.globals)}: a condition "
                f"that keeps its length from being negative is missing, as Ordered(…)"
            )
        for at in range(low, high + 1):
            yield from self._ranges(expr, limits[:-1], {**env, binder: at})


def show(values: Mapping[Any, Any]) -> str:
    """n = 3, m = 5."""
    return ", ".join(f"{k} = {v}" for k, v in sorted(values.items(), key=lambda kv: str(kv[0])))


_Method = Callable[[Evaluator, Any, Mapping[Any, int], tuple[_Seed, ...]], Any]
_NODES: dict[Any, _Method] = {
    sympy.Add: Evaluator._add,
    sympy.Mul: Evaluator._mul,
    sympy.Pow: Evaluator._pow,
    sympy.exp: Evaluator._exp,
    sympy.log: Evaluator._log,
    sympy.tanh: Evaluator._function,
    sympy.sin: Evaluator._function,
    sympy.cos: Evaluator._function,
    sympy.Abs: Evaluator._abs,
    sympy.KroneckerDelta: Evaluator._delta,
    sympy.Piecewise: Evaluator._piecewise,
    sympy.Indexed: Evaluator._indexed,
    Diff: Evaluator._diff,
    sympy.Sum: Evaluator._sum,
    sympy.Product: Evaluator._product,
    sympy.Max: Evaluator._integer_valued,
    sympy.Min: Evaluator._integer_valued,
    sympy.floor: Evaluator._integer_valued,
    sympy.ceiling: Evaluator._integer_valued,
}
