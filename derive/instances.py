"""Concrete instances of a statement: sizes and free indices that satisfy its side conditions.

Guarantees: reads the SymPy statement and the assumptions themselves (never the terms of the first checker); an
instance meets every InRange, AtLeast, Ordered and Distinct condition; an integer symbol that is neither a size, nor
bound by a sum, nor given a range is a StatementError that names it.
Does not: look at conditions in words, or at Positive and ZeroOne, which concern the values and not the sizes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from derive.assumptions import Assumption, AtLeast, Defined, Distinct, InRange, Ordered, Positive
from derive.errors import StatementError
from derive.language import Diff


@dataclass(frozen=True)
class Statement:
    """What a checker evaluates: several expressions under common assumptions."""

    expressions: tuple[Any, ...]
    assumptions: tuple[Assumption, ...]

    @cached_property
    def definitions(self) -> dict[Any, Defined]:
        """Abbreviations by the name of their array. A name defined twice is a StatementError."""
        table: dict[Any, Defined] = {}
        for one in self.assumptions:
            if isinstance(one, Defined):
                label = label_of(one.array)
                if label in table:
                    raise StatementError(f"{label} is defined twice; an abbreviation needs one meaning")
                table[label] = one
        return table

    @cached_property
    def facts(self) -> dict[Any, Any]:
        """What evaluators found out about sub-expressions, kept for all draws."""
        return {}

    @cached_property
    def roots(self) -> tuple[Any, ...]:
        """All expressions that can be evaluated: the sides, the definitions and the positive expressions."""
        positive = tuple(a.expr for a in self.assumptions if isinstance(a, Positive))
        return (*self.expressions, *(d.body for d in self.definitions.values()), *positive)

    @cached_property
    def binders(self) -> frozenset[Any]:
        """Symbols that some sum, product or definition binds."""
        found: set[Any] = set()
        for node in self.nodes:
            if isinstance(node, (sympy.Sum, sympy.Product)):
                for limit in node.limits:
                    if len(limit) != 3:
                        raise StatementError(f"sum without a range: {node}; give (binder, first, last)")
                    found.add(limit[0])
        for definition in self.definitions.values():
            found.update(definition.indices)
        return frozenset(found)

    @cached_property
    def nodes(self) -> tuple[Any, ...]:
        return tuple(node for root in self.roots for node in sympy.preorder_traversal(root))

    @cached_property
    def ranges(self) -> tuple[InRange, ...]:
        return tuple(a for a in self.assumptions if isinstance(a, InRange))

    @cached_property
    def free_symbols(self) -> frozenset[Any]:
        """Free symbols of the sides and the definitions, without array names."""
        labels = {label_of(node) for node in self.nodes if isinstance(node, sympy.IndexedBase)}
        found: set[Any] = set()
        for expression in self.expressions:
            found |= free_symbols(expression)
        for definition in self.definitions.values():
            found |= free_symbols(definition.body) - set(definition.indices)
        for one in self.assumptions:
            if isinstance(one, Positive):
                found |= free_symbols(one.expr) - self.binders
        return frozenset(found - labels)

    @cached_property
    def sizes(self) -> tuple[Any, ...]:
        """Non-negative integer symbols without a range of their own, sorted by name."""
        ranged = {r.index for r in self.ranges}
        found = {s for s in self._everything if s.is_integer and s.is_nonnegative and s not in ranged}
        return tuple(sorted(found - {s for s in self.binders if s not in self.free_symbols}, key=str))

    @cached_property
    def middles(self) -> tuple[Any, ...]:
        """Integer symbols that only an Ordered condition gives a place, as a split point."""
        given = {r.index for r in self.ranges} | set(self.sizes)
        found = {
            a.middle
            for a in self.assumptions
            if isinstance(a, Ordered) and isinstance(a.middle, sympy.Symbol) and a.middle.is_integer
        }
        return tuple(sorted(found - given, key=str))

    @cached_property
    def movable(self) -> tuple[InRange, ...]:
        """Everything that has a range at given sizes: the free indices, and the middle of every order of sizes."""
        known = {r.index for r in self.ranges}
        middles = {
            a.middle: InRange(a.middle, a.lower, a.upper)
            for a in self.assumptions
            if isinstance(a, Ordered) and isinstance(a.middle, sympy.Symbol) and a.middle.is_integer
        }
        return (*self.ranges, *(r for s, r in middles.items() if s not in known))

    @cached_property
    def scalars(self) -> tuple[Any, ...]:
        """Symbols that are not known to be integers."""
        return tuple(sorted((s for s in self.free_symbols if not s.is_integer), key=str))

    @cached_property
    def _everything(self) -> frozenset[Any]:
        found = set(self.free_symbols)
        for one in self.assumptions:
            for value in vars(one).values() if isinstance(one, (InRange, AtLeast, Ordered, Distinct)) else ():
                if isinstance(value, sympy.Basic) and not isinstance(value, (sympy.IndexedBase, sympy.Indexed)):
                    found |= value.free_symbols
        for node in self.nodes:
            if isinstance(node, sympy.IndexedBase) and node.shape is not None:
                for length in node.shape:
                    found |= length.free_symbols
        return frozenset(found)

    @cached_property
    def counting(self) -> frozenset[Any]:
        """Sizes that set how many terms there are, or which: the others only enter as values."""
        found: set[Any] = set()
        for node in self.nodes:
            if isinstance(node, (sympy.Sum, sympy.Product)):
                for _, low, high in node.limits:
                    found |= low.free_symbols | high.free_symbols
            elif isinstance(node, sympy.Indexed):
                for place in node.indices:
                    found |= place.free_symbols
                for length in node.base.shape or ():
                    found |= length.free_symbols
            elif isinstance(node, (sympy.KroneckerDelta, sympy.Piecewise)) or (
                isinstance(node, sympy.Pow) and node.exp.free_symbols
            ):
                found |= node.free_symbols
        for one in self.assumptions:
            if isinstance(one, (InRange, Ordered, Distinct, AtLeast)):
                for value in vars(one).values():
                    if isinstance(value, sympy.Basic):
                        found |= value.free_symbols
        return frozenset(found)

    def check_bound(self) -> None:
        """Raise StatementError for an integer symbol that nothing gives a value."""
        known = set(self.sizes) | set(self.middles) | {r.index for r in self.ranges}
        for symbol in sorted(self.free_symbols, key=str):
            if symbol.is_integer and symbol not in known:
                where = next((str(e) for e in self.expressions if symbol in e.free_symbols), str(symbol))
                raise StatementError(
                    f"index {symbol} is unbound in {where}: sum over it, or give its range with InRange({symbol}, …)"
                )


def free_symbols(expr: Any) -> set[Any]:
    """Free symbols of an expression without those that only stand in the shape of an array."""
    if isinstance(expr, sympy.Indexed):
        return set().union(*(free_symbols(place) for place in expr.indices))
    if isinstance(expr, (sympy.Sum, sympy.Product)):
        found = free_symbols(expr.function)
        for binder, low, high in expr.limits:
            found = (found - {binder}) | free_symbols(low) | free_symbols(high)
        return found
    if isinstance(expr, Diff):
        return free_symbols(expr.expr) | free_symbols(expr.entry)
    if isinstance(expr, sympy.Symbol):
        return {expr}
    return set().union(*(free_symbols(a) for a in expr.args)) if isinstance(expr, sympy.Basic) and expr.args else set()


def label_of(base: Any) -> str:
    """The name of an array, from its IndexedBase or its name."""
    symbol = base.label if isinstance(base, sympy.IndexedBase) else base
    return symbol.name if isinstance(symbol, sympy.Symbol) else str(symbol)


def integer(expr: Any, values: Mapping[Any, int]) -> int:
    """The integer value of an expression in sizes and indices. Raises StatementError when it isn't an integer."""
    if isinstance(expr, int):
        return expr
    if expr.is_Integer:
        return int(expr)
    if expr in values:
        return values[expr]
    if isinstance(expr, sympy.Add):
        return sum(integer(a, values) for a in expr.args)
    if isinstance(expr, (sympy.Max, sympy.Min)):
        pick = max if isinstance(expr, sympy.Max) else min
        return pick(integer(a, values) for a in expr.args)
    if isinstance(expr, (sympy.Mul, sympy.Pow, sympy.floor, sympy.ceiling, sympy.Mod)):
        value = expr.xreplace({s: sympy.Integer(v) for s, v in values.items() if s in expr.free_symbols})
        if value.is_Integer:
            return int(value)
    raise StatementError(f"{expr} is no integer expression in the sizes and indices, and an index or a range needs one")


def holds(condition: Any, values: Mapping[Any, int]) -> bool:
    """The truth of a relation between integer expressions, as a condition of a Piecewise."""
    if condition in (True, sympy.true):
        return True
    if condition in (False, sympy.false):
        return False
    if isinstance(condition, sympy.And):
        return all(holds(a, values) for a in condition.args)
    if isinstance(condition, sympy.Or):
        return any(holds(a, values) for a in condition.args)
    if isinstance(condition, sympy.Not):
        return not holds(condition.args[0], values)
    if isinstance(condition, sympy.core.relational.Relational):
        a, b = integer(condition.lhs, values), integer(condition.rhs, values)
        compare = {"<=": a <= b, "<": a < b, ">=": a >= b, ">": a > b, "==": a == b, "!=": a != b}
        return compare[condition.rel_op]
    raise StatementError(f"condition {condition} is not a relation between sizes and indices")


def instances(
    statement: Statement,
    rng: random.Random,
    *,
    pool: Sequence[int],
    distinct: bool,
    pools: Mapping[Any, Sequence[int]] | None = None,
    attempts: int = 400,
) -> Iterator[dict[Any, int]]:
    """Endless draws of sizes from `pool` (or their own pool) and of free indices, all conditions met.

    distinct: sizes that count terms are pairwise different. Raises StatementError when `attempts` draws in a row
    meet no instance: the conditions contradict each other, or ask for sizes beyond the pool.
    """
    statement.check_bound()
    order = [a for a in statement.assumptions if isinstance(a, (Ordered, Distinct))]
    least = {a.size: a.least for a in statement.assumptions if isinstance(a, AtLeast)}
    composite = [a for a in statement.assumptions if isinstance(a, AtLeast) and not isinstance(a.size, sympy.Symbol)]
    counting = [s for s in statement.sizes if s in statement.counting]
    while True:
        for _ in range(attempts):
            values: dict[Any, int] = {}
            for s in statement.sizes:
                choices = [v for v in (pools or {}).get(s, pool) if v >= least.get(s, 0)]
                if not choices:
                    raise StatementError(f"no size to draw for {s}: at least {least.get(s, 0)} was asked for")
                values[s] = rng.choice(choices)
            for s in statement.middles:
                values[s] = rng.randint(min(pool) - 1, max(pool))
            if distinct and len({values[s] for s in counting}) < len(counting):
                continue
            if not _place(statement.ranges, values, lambda ends: rng.randint(*ends)):
                continue
            if all(integer(a.size, values) >= a.least for a in composite) and all(_meets(a, values) for a in order):
                break
        else:
            raise StatementError("no sizes were found that meet all conditions; do they contradict each other?")
        yield values


def _place(ranges: Sequence[InRange], values: dict[Any, int], pick: Callable[[tuple[int, int]], int]) -> bool:
    """Pick every free index in its range, those whose ends depend on others after them. False for an empty range."""
    waiting = list(ranges)
    while waiting:
        later = []
        for one in waiting:
            unknown = {s for end in (one.lower, one.upper) for s in sympy.sympify(end, strict=True).free_symbols}
            if unknown - set(values):
                later.append(one)
                continue
            low, high = integer(one.lower, values), integer(one.upper, values)
            if one.index in values:
                if not low <= values[one.index] <= high:
                    return False
                continue
            if low > high:
                return False
            values[one.index] = pick((low, high))
        if len(later) == len(waiting):
            raise StatementError(f"the range of {later[0].index} depends on a symbol without a value: {later[0]}")
        waiting = later
    return True


def placements(statement: Statement, values: dict[Any, int], rng: random.Random, count: int) -> list[dict[Any, int]]:
    """Up to `count` different placements of the free indices and split points at the same sizes, all conditions met:
    the one given, the first and the last place of every range (where a range that is one too short shows), then random
    ones."""
    order = [a for a in statement.assumptions if isinstance(a, (Ordered, Distinct))]
    least = [a for a in statement.assumptions if isinstance(a, AtLeast)]
    movable = {r.index for r in statement.movable}
    sizes = {s: v for s, v in values.items() if s not in movable}
    found = [values]
    picks: list[Any] = [min, max, *[lambda ends: rng.randint(*ends)] * (3 * count)]
    for pick in picks if movable else ():
        if len(found) >= count:
            break
        one = dict(sizes)
        try:
            placed = _place(statement.movable, one, pick)
        except StatementError:
            break  # orders that refer to each other in a circle: the placement given is all there is
        if not placed or one in found:
            continue
        if all(_meets(a, one) for a in order) and all(integer(a.size, one) >= a.least for a in least):
            found.append(one)
    return found


def _meets(condition: Any, values: Mapping[Any, int]) -> bool:
    if isinstance(condition, Distinct):
        return integer(condition.first, values) != integer(condition.second, values)
    ends = [sympy.sympify(e, strict=True) for e in (condition.lower, condition.middle, condition.upper)]
    if not all(s in values for e in ends for s in free_symbols(e)) or any(e.has(sympy.Indexed) for e in ends):
        return True  # a condition on real values, not on sizes: the checker of values looks at it
    low, middle, high = (integer(e, values) for e in ends)
    return low <= middle <= high
