"""A plain evaluation of a SymPy statement at numbers: the reference that shares code with nobody.

Guarantees: every node is carried out as its definition says, entry by entry; a derivative `Diff` is a central
difference in so many digits that more than fifty are right; a node without such a meaning raises Unsupported.
Does not: simplify, rearrange or cache anything but abbreviations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy

from derive.assumptions import Defined
from derive.language import Diff
from derive.moments.nodes import PowerSum
from verify.crosschecking.arithmetic import Digits, Rounded, Unsupported

Entry = tuple[str, tuple[int, ...]]
_FUNCTIONS: dict[Any, str] = {
    sympy.exp: "exp",
    sympy.log: "log",
    sympy.tanh: "tanh",
    sympy.erf: "erf",
    sympy.Abs: "abs",
    sympy.sin: "sin",
    sympy.cos: "cos",
    sympy.cosh: "cosh",
    sympy.gamma: "gamma",
    sympy.loggamma: "loggamma",
    sympy.digamma: "digamma",
}


class Evaluation:
    """Values of expressions at given inputs.

    arrays: name → mapping from index tuples to numbers; scalars: name → number (sizes and free indices included, as
    ints); definitions: abbreviations, evaluated when read. The arithmetic is `Digits` or `Rounded`.
    """

    def __init__(
        self,
        arithmetic: Digits | Rounded,
        arrays: Mapping[str, Mapping[tuple[int, ...], Any]],
        scalars: Mapping[str, Any],
        definitions: tuple[Defined, ...] = (),
    ) -> None:
        self._a: Any = arithmetic
        self._arrays = arrays
        self._scalars = {name: self._a.exact(value) for name, value in scalars.items()}
        self._definitions = {str(d.array.label if hasattr(d.array, "label") else d.array): d for d in definitions}
        self._moved: dict[Entry, Any] = {}
        self._kept: dict[Entry, Any] = {}
        self._free: dict[Any, int] = {}

    def value(self, expr: Any, bound: Mapping[Any, int] | None = None) -> Any:
        """The value of an expression; bound: binders and free indices → integers."""
        free = dict(bound or {})
        if free != self._free:
            self._free, self._kept = free, {}
        return self._value(sympy.sympify(expr, strict=True), free)

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _value(self, expr: Any, at: dict[Any, int]) -> Any:
        if expr.is_Rational:
            return self._a.ratio(int(expr.p), int(expr.q))
        handler = _HANDLERS.get(expr.func)
        if handler is None:
            raise Unsupported(f"{expr.func.__name__} has no value at numbers here")
        return handler(self, expr, at)

    def _symbol(self, expr: Any, at: dict[Any, int]) -> Any:
        if expr in at:
            return self._a.exact(at[expr])
        if (expr.name, ()) in self._moved:
            return self._moved[expr.name, ()]
        if expr.name not in self._scalars:
            raise Unsupported(f"no value is given for {expr.name}")
        return self._scalars[expr.name]

    def _integer(self, expr: Any, at: dict[Any, int]) -> int:
        value = self._a.middle(self._value(expr, at))
        if value != int(value):
            raise Unsupported(f"{expr} is {value}: expected an integer")
        return int(value)

    def _indexed(self, expr: Any, at: dict[Any, int]) -> Any:
        entry = self._entry(expr, at)
        if entry in self._moved:
            return self._moved[entry]
        name, place = entry
        if name in self._definitions:
            return self._abbreviation(entry)
        if name not in self._arrays:
            raise Unsupported(f"no array {name} is given")
        if place not in self._arrays[name]:
            raise Unsupported(f"{name}{list(place)} is outside the array")
        return self._a.exact(self._arrays[name][place])

    def _entry(self, expr: Any, at: dict[Any, int]) -> Entry:
        return str(expr.base.label), tuple(self._integer(i, at) for i in expr.indices)

    def _abbreviation(self, entry: Entry) -> Any:
        if entry in self._kept:
            return self._kept[entry]
        definition = self._definitions[entry[0]]
        # A body may speak of the statement's free indices beside its own.
        own = dict(zip(definition.indices, entry[1], strict=True))
        found = self._value(definition.body, {**self._free, **own})
        self._kept[entry] = found
        return found

    def _add(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._a.add([self._value(a, at) for a in expr.args])

    def _mul(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._a.mul([self._value(a, at) for a in expr.args])

    def _pow(self, expr: Any, at: dict[Any, int]) -> Any:
        base, exponent = expr.args
        if exponent == sympy.S.Half:
            return self._a.function("sqrt", self._value(base, at))
        return self._a.power(self._value(base, at), self._value(exponent, at))

    def _function(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._a.function(_FUNCTIONS[expr.func], self._value(expr.args[0], at))

    def _range(self, limits: Any, at: dict[Any, int]) -> tuple[Any, range]:
        binder, low, high = limits
        return binder, range(self._integer(low, at), self._integer(high, at) + 1)

    def _fold(self, expr: Any, at: dict[Any, int], join: Callable[[list[Any]], Any]) -> Any:
        # SymPy's last limit is the outermost one.
        body, *limits = expr.args
        if len(limits) > 1:
            inner = expr.func(body, *limits[:-1])
        else:
            inner = body
        binder, values = self._range(limits[-1], at)
        return join([self._value(inner, {**at, binder: v}) for v in values])

    def _sum(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._fold(expr, at, self._a.add)

    def _product(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._fold(expr, at, lambda f: self._a.mul(f) if f else self._a.exact(1))

    def _delta(self, expr: Any, at: dict[Any, int]) -> Any:
        a, b = expr.args[:2]
        return self._a.exact(int(self._integer(a, at) == self._integer(b, at)))

    def _piecewise(self, expr: Any, at: dict[Any, int]) -> Any:
        for branch in expr.args:
            if self._holds(branch.cond, at):
                return self._value(branch.expr, at)
        raise Unsupported("no branch of a case distinction applies")

    def _holds(self, condition: Any, at: dict[Any, int]) -> bool:
        if condition in (sympy.true, sympy.false):
            return bool(condition)
        if isinstance(condition, sympy.And):
            return all(self._holds(c, at) for c in condition.args)
        if isinstance(condition, sympy.Or):
            return any(self._holds(c, at) for c in condition.args)
        if isinstance(condition, sympy.Not):
            return not self._holds(condition.args[0], at)
        if not isinstance(condition, sympy.core.relational.Relational):
            raise Unsupported(f"condition {condition}")
        a, b = (self._a.middle(self._value(s, at)) for s in (condition.lhs, condition.rhs))
        truth = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
        return bool(truth[condition.rel_op])

    def _floor(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._a.exact(int(self._whole(expr.args[0], at).__floor__()))

    def _modulo(self, expr: Any, at: dict[Any, int]) -> Any:
        a, b = (self._integer(x, at) for x in expr.args)
        return self._a.exact(a % b)

    def _whole(self, expr: Any, at: dict[Any, int]) -> Fraction:
        """A rational function of integers, exactly: floor must not see a rounded quotient."""
        if expr.is_Rational:
            return Fraction(int(expr.p), int(expr.q))
        if expr.is_Add:
            return sum((self._whole(a, at) for a in expr.args), Fraction(0))
        if expr.is_Mul:
            product = Fraction(1)
            for a in expr.args:
                product *= self._whole(a, at)
            return product
        if expr.is_Pow and expr.exp.is_Integer:
            return self._whole(expr.base, at) ** int(expr.exp)
        return Fraction(self._integer(expr, at))

    def _max(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._a.largest([self._value(a, at) for a in expr.args])

    def _min(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._a.smallest([self._value(a, at) for a in expr.args])

    def _constant(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._a.constant({sympy.pi: "pi", sympy.E: "e", sympy.EulerGamma: "euler_gamma"}[expr])

    def _opened(self, expr: Any, at: dict[Any, int]) -> Any:
        return self._value(expr.opened(), at)

    def _diff(self, expr: Any, at: dict[Any, int]) -> Any:
        """(f(x+h) − f(x−h))/2h with h = 10^(−digits/4): truncation and rounding both stay below 10^(−digits/4)."""
        if not isinstance(self._a, Digits):
            raise Unsupported("a rounding bound of a derivative")
        context = self._a.context
        step = context.mpf(10) ** (-(context.dps // 4))
        by = expr.entry
        entry = (by.name, ()) if isinstance(by, sympy.Symbol) else self._entry(by, at)
        here = self._value(by, at)
        before, kept = self._moved.get(entry), self._kept
        ends = []
        for sign in (1, -1):
            self._moved[entry], self._kept = here + sign * step, {}
            ends.append(self._value(expr.expr, at))
        self._kept = kept
        if before is None:
            del self._moved[entry]
        else:
            self._moved[entry] = before
        return (ends[0] - ends[1]) / (2 * step)


_HANDLERS: dict[Any, Callable[[Evaluation, Any, dict[Any, int]], Any]] = {
    sympy.Symbol: Evaluation._symbol,
    sympy.Dummy: Evaluation._symbol,
    sympy.Indexed: Evaluation._indexed,
    sympy.Add: Evaluation._add,
    sympy.Mul: Evaluation._mul,
    sympy.Pow: Evaluation._pow,
    sympy.Sum: Evaluation._sum,
    sympy.Product: Evaluation._product,
    sympy.KroneckerDelta: Evaluation._delta,
    sympy.Piecewise: Evaluation._piecewise,
    sympy.floor: Evaluation._floor,
    sympy.Mod: Evaluation._modulo,
    sympy.Max: Evaluation._max,
    sympy.Min: Evaluation._min,
    Diff: Evaluation._diff,
    PowerSum: Evaluation._opened,
    type(sympy.pi): Evaluation._constant,
    type(sympy.E): Evaluation._constant,
    type(sympy.EulerGamma): Evaluation._constant,
    **dict.fromkeys(_FUNCTIONS, Evaluation._function),
}
