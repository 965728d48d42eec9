"""Signs of SymPy expressions, for inequalities and limits (`derive.signs` has those of the first checker's terms).

Guarantees: `sign` answers from the structure of an expression and the stated conditions alone: squares, exponentials,
sums and products of what is not negative, facts that an assumption states.
Does not: decide signs. UNKNOWN means "not shown", and is never read as negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product
from typing import Any

import sympy

from derive.assumptions import Assumption, AtLeast, Defined, Distinct, InRange, Ordered, Positive, ZeroOne
from derive.errors import StatementError
from derive.instances import free_symbols, label_of
from derive.step import Step


class Sign(IntEnum):
    """What is known of a sign; the order is the strength of the knowledge."""

    UNKNOWN = 0
    NONNEGATIVE = 1
    POSITIVE = 2


def read(value: Any) -> Any:
    """A part of a condition as SymPy; text is refused, never evaluated."""
    try:
        return sympy.sympify(value, strict=True)
    except (sympy.SympifyError, TypeError):
        raise StatementError(f"a condition holds {value!r}; expected a SymPy expression or a number") from None


@dataclass(frozen=True)
class Context:
    """The conditions under which a sign is asked for: assumptions, the free symbols of the statement's sides (an
    assumption's index among them is that one index), ranges of the binders in scope, and indices that are known to
    differ because a factor 1 − δ vanishes otherwise. A range without ends: nothing is known of that binder."""

    assumptions: tuple[Assumption, ...]
    fixed: frozenset[Any] = frozenset()
    ranges: tuple[tuple[Any, Any, Any], ...] = ()
    distinct: tuple[tuple[Any, Any], ...] = ()

    @classmethod
    def of(cls, step: Step) -> Context:
        """The conditions of a step."""
        sides = (step.lhs.args[0] if isinstance(step.lhs, sympy.Limit) else step.lhs, step.rhs)
        return cls(step.assumptions, frozenset().union(*(free_symbols(side) for side in sides)))

    def given(self, *ranges: tuple[Any, Any, Any]) -> Context:
        """Inside a sum: its binders shadow everything of their names that was known before."""
        names = {r[0] for r in ranges}
        kept = tuple(
            (r[0], None, None) if r[1] is not None and names & (free_symbols(r[1]) | free_symbols(r[2])) else r
            for r in self.ranges
            if r[0] not in names
        )
        apart = tuple(d for d in self.distinct if not names & set(free_symbols(d[0]) | free_symbols(d[1])))
        return replace(self, ranges=(*kept, *ranges), distinct=apart)

    @property
    def bound(self) -> frozenset[Any]:
        """The binders in scope."""
        return frozenset(r[0] for r in self.ranges)

    def stated_range(self, index: Any) -> tuple[Any, Any] | None:
        """The range that the conditions state, whatever the sum in which one asks."""
        for one in self.assumptions:
            if isinstance(one, InRange) and one.index == index:
                return read(one.lower), read(one.upper)
        return None

    def range_of(self, index: Any) -> tuple[Any, Any] | None:
        """The range of a symbol as it is meant here, its ends in symbols as they are meant here."""
        for name, low, high in reversed(self.ranges):
            if name == index:
                return None if low is None else (low, high)
        ends = self.stated_range(index)
        if ends is None or self.bound & (free_symbols(ends[0]) | free_symbols(ends[1])):
            return None  # an end is hidden by a binder of its name
        return ends

    def differ(self, a: Any, b: Any) -> bool:
        stated = [(read(d.first), read(d.second)) for d in self.assumptions if isinstance(d, Distinct)]
        stated = [d for d in stated if not self.bound & (free_symbols(d[0]) | free_symbols(d[1]))]
        return any({a, b} == set(pair) for pair in (*self.distinct, *stated))


def sign(expr: Any, context: Context) -> Sign:
    """The sign of an expression, as far as its structure shows it."""
    stated = _stated(expr, context)
    if stated is not Sign.UNKNOWN:
        return stated
    if expr.is_Rational:
        return Sign.POSITIVE if expr > 0 else Sign.NONNEGATIVE if expr == 0 else Sign.UNKNOWN
    for kind, method in _KINDS:
        if isinstance(expr, kind):
            return method(expr, context)
    return Sign.UNKNOWN


def _symbol(expr: Any, context: Context) -> Sign:
    if expr in context.bound:
        least = minimum(expr, context)  # what its symbol says of itself needn't hold of a binder
        return Sign.UNKNOWN if least is None or least < 0 else Sign.POSITIVE if least > 0 else Sign.NONNEGATIVE
    if expr.is_positive:
        return Sign.POSITIVE
    least = minimum(expr, context)
    if least is None:
        return Sign.NONNEGATIVE if expr.is_nonnegative else Sign.UNKNOWN
    return Sign.POSITIVE if least > 0 else Sign.NONNEGATIVE if least == 0 else Sign.UNKNOWN


def minimum(expr: Any, context: Context) -> int | None:
    """A lower bound of a linear integer expression, or None: every index is put at the end of its range that makes the
    expression least, innermost first, and every size at its least value."""
    current = sympy.expand(expr)
    for name, ends in _innermost_first(context):
        factor = current.coeff(name)
        if factor.is_Integer and factor != 0:
            current = sympy.expand(current - factor * name + factor * (ends[1] if factor < 0 else ends[0]))
    total = 0
    for term in sympy.Add.make_args(current):
        factor, symbol = term.as_coeff_Mul()
        if not factor.is_Integer:
            return None
        least = 1 if symbol == 1 else _least(symbol, context) if factor > 0 else None
        if least is None:
            return None
        total += int(factor) * least
    return total


def _innermost_first(context: Context) -> list[tuple[Any, tuple[Any, Any]]]:
    """Ranged indices with their ends, each before those that its ends depend on."""
    names = {r[0] for r in context.ranges} | {a.index for a in context.assumptions if isinstance(a, InRange)}
    waiting = {name: ends for name in sorted(names, key=str) if (ends := context.range_of(name)) is not None}
    order = []
    while waiting:
        free = [
            x for x in waiting if not any(x in free_symbols(e) for y, ends in waiting.items() if y != x for e in ends)
        ]
        if not free or any(free[0] in free_symbols(e) for e in waiting[free[0]]):
            break  # ranges that depend on each other, or on themselves, give no bound
        order.append((free[0], waiting.pop(free[0])))
    return order


def _least(size: Any, context: Context) -> int | None:
    if size in context.bound or not (size.is_Symbol and size.is_integer and size.is_nonnegative):
        return None
    stated = [a.least for a in context.assumptions if isinstance(a, AtLeast) and a.size == size]
    return max(stated, default=0)


def nonempty(low: Any, high: Any, context: Context) -> bool:
    """Whether low ≤ high follows from the ranges and the least sizes."""
    gap = minimum(high - low, context)
    return gap is not None and gap >= 0


def _pow(expr: Any, context: Context) -> Sign:
    base, exponent = expr.args
    below = sign(base, context)
    if below is Sign.POSITIVE:
        return Sign.POSITIVE
    if exponent.is_Integer and exponent > 0 and (exponent % 2 == 0 or below is Sign.NONNEGATIVE):
        return Sign.NONNEGATIVE
    if exponent.is_Rational and exponent > 0 and below is Sign.NONNEGATIVE:
        return Sign.NONNEGATIVE
    return Sign.UNKNOWN


def _mul(expr: Any, context: Context) -> Sign:
    """A product is as its factors; a factor 1 − δ_ij lets the others presume i ≠ j, the product being 0 otherwise."""
    apart = tuple(pair for factor in expr.args if (pair := _complement(factor)) is not None)
    inner = replace(context, distinct=(*context.distinct, *apart))
    signs = [Sign.NONNEGATIVE if _complement(f) is not None else sign(f, inner) for f in expr.args]
    return min(signs)


def _complement(expr: Any) -> tuple[Any, Any] | None:
    """(i, j) for 1 − δ_ij."""
    if isinstance(expr, sympy.Add) and len(expr.args) == 2:
        rest = 1 - expr
        if isinstance(rest, sympy.KroneckerDelta) and len(rest.args) == 2:
            return rest.args[0], rest.args[1]
    return None


def _add(expr: Any, context: Context) -> Sign:
    pair = _complement(expr)
    if pair is not None:
        return Sign.POSITIVE if context.differ(*pair) else Sign.NONNEGATIVE
    if all(a.is_integer and (a.is_Symbol or a.as_coeff_Mul()[1].is_Atom) for a in expr.args):
        least = minimum(expr, context)
        if least is not None and least >= 0:
            return Sign.POSITIVE if least > 0 else Sign.NONNEGATIVE
    if len(expr.args) == 2:
        special = _two_terms(expr, context)
        if special is not Sign.UNKNOWN:
            return special
    signs = [sign(a, context) for a in expr.args]
    return max(signs) if min(signs) >= Sign.NONNEGATIVE else Sign.UNKNOWN


def _two_terms(expr: Any, context: Context) -> Sign:
    """exp A − exp B has the sign of A − B (exp increases); 1 ± tanh and 1 − tanh² are positive (|tanh| < 1)."""
    unit, rest = (expr - 1).as_coeff_Mul()
    if unit in (1, -1) and isinstance(rest, sympy.tanh):
        return Sign.POSITIVE
    for plus, minus in (expr.args, tuple(reversed(expr.args))):
        factor, square = minus.as_coeff_Mul()
        if factor != -1:
            continue
        if plus == 1 and isinstance(square, sympy.Pow) and square.exp == 2 and isinstance(square.base, sympy.tanh):
            return Sign.POSITIVE
        exponents = [_exponent(plus), _exponent(square)]
        if exponents[0] is not None and exponents[1] is not None and (plus, square) != (1, 1):
            return sign(exponents[0] - exponents[1], context)
    return Sign.UNKNOWN


def _exponent(expr: Any) -> Any:
    if expr == 1:
        return sympy.Integer(0)
    return expr.args[0] if isinstance(expr, sympy.exp) else None


def _sum(expr: Any, context: Context) -> Sign:
    limits = tuple(tuple(limit) for limit in reversed(expr.limits))  # SymPy's last limit is the outermost
    inner = context
    filled = True
    for binder, low, high in limits:
        filled = filled and nonempty(low, high, inner)
        inner = inner.given((binder, low, high))
    body = sign(expr.function, inner)
    return body if body is not Sign.POSITIVE or filled else Sign.NONNEGATIVE


def _product(expr: Any, context: Context) -> Sign:
    inner = context.given(*(tuple(limit) for limit in reversed(expr.limits)))
    return sign(expr.function, inner)  # an empty product is 1


def _indexed(expr: Any, context: Context) -> Sign:
    label = label_of(expr.base)
    for one in context.assumptions:
        if isinstance(one, ZeroOne) and label_of(one.array) == label:
            return Sign.NONNEGATIVE
        if isinstance(one, Defined) and label_of(one.array) == label:
            return _defined(one, expr.indices, context)
    return Sign.UNKNOWN


def _defined(one: Defined, places: tuple[Any, ...], context: Context) -> Sign:
    """The sign of a definition's body at these places. The body is read outside all sums, and its indices get names of
    their own: none of them is the free index, the binder or the index of a condition that has the same name."""
    if len(one.indices) != len(places):
        return Sign.UNKNOWN
    own = {i: sympy.Dummy(i.name, integer=True) for i in one.indices}
    if set(own) & _binders(one.body):
        return Sign.UNKNOWN
    ranges: list[tuple[Any, Any, Any]] = []
    for index, at in zip(one.indices, places, strict=True):
        ends = context.range_of(at) if at.is_Symbol else None
        low, high = ends or (at, at)
        hidden = context.bound & (free_symbols(low) | free_symbols(high))
        ranges.append((own[index], None, None) if hidden else (own[index], low, high))
    return sign(one.body.xreplace(own), replace(context, ranges=tuple(ranges), distinct=()))


def _log(expr: Any, context: Context) -> Sign:
    """log A ≥ 0 where A ≥ 1."""
    return sign(expr.args[0] - 1, context)


_KINDS: tuple[tuple[Any, Any], ...] = (
    (sympy.Symbol, _symbol),
    (sympy.exp, lambda e, c: Sign.POSITIVE),
    (sympy.Abs, lambda e, c: Sign.NONNEGATIVE),
    (sympy.KroneckerDelta, lambda e, c: Sign.NONNEGATIVE),
    (sympy.log, _log),
    (sympy.Pow, _pow),
    (sympy.Mul, _mul),
    (sympy.Add, _add),
    (sympy.Sum, _sum),
    (sympy.Product, _product),
    (sympy.Indexed, _indexed),
)


def _stated(expr: Any, context: Context) -> Sign:
    """Whether an assumption says it: Positive, or one of the two differences of an Ordered, for the indices in scope.

    An index of the assumption that is free in the statement's sides is that one index; any other stands for every
    index of the same range that meets the assumption's Distinct conditions.
    """
    for one in context.assumptions:
        if isinstance(one, Positive):
            facts = [(read(one.expr), Sign.POSITIVE)]
        elif isinstance(one, Ordered):
            low, middle, high = (read(e) for e in (one.lower, one.middle, one.upper))
            facts = [(middle - low, Sign.NONNEGATIVE), (high - middle, Sign.NONNEGATIVE)]
        else:
            continue
        for fact, strength in facts:
            if any(variant == expr for variant in _variants(fact, one, context)):
                return strength
    return Sign.UNKNOWN


def _variants(fact: Any, source: Any, context: Context) -> Iterator[Any]:
    """The fact at all indices in scope that its ranged indices may stand for.

    Each of them stands for an index whose range is that range, and keeps to the Distinct conditions; every other name
    must mean here what it means in the conditions, so none of them may be a binder in scope.
    """
    pairs = [(read(d.first), read(d.second)) for d in context.assumptions if isinstance(d, Distinct)]
    general, fixed = _names_of(fact, pairs, context)
    if fixed & context.bound:
        return
    limited = {
        name
        for a in context.assumptions
        if isinstance(a, Ordered) and a is not source and not of_reals(a)
        for e in (a.lower, a.middle, a.upper)
        for name in free_symbols(read(e))
    }
    indices = sorted(general, key=str)
    places = sorted(context.bound | context.fixed, key=str)
    choices = [
        ([i] if i not in context.bound else []) + [p for p in places if i not in limited and p.is_integer]
        for i in indices
    ]
    hidden = _binders(fact)
    for chosen in product(*choices):
        names = dict(zip(indices, chosen, strict=True))
        moved = {i: p for i, p in names.items() if i != p}
        if hidden & (set(moved) | set(moved.values())):
            continue
        ranges = {i: tuple(e.xreplace(names) for e in context.stated_range(i) or ()) for i in indices}
        in_place = all(context.range_of(p) == ranges[i] for i, p in names.items() if i != p or p in context.bound)
        apart = all(
            context.differ(a.xreplace(names), b.xreplace(names)) for a, b in pairs if {a, b} & (set(moved) | general)
        )
        if in_place and apart:
            yield fact.xreplace(moved)


def _names_of(fact: Any, pairs: list[tuple[Any, Any]], context: Context) -> tuple[set[Any], set[Any]]:
    """The ranged indices of which a fact speaks in general, and the names in it or its conditions that mean one thing.

    An index is general when it has a stated range and is not free in the statement's sides.
    """
    general: set[Any] = set()
    fixed: set[Any] = set()
    waiting = set(free_symbols(fact))
    while waiting:
        name = waiting.pop()
        if name in general | fixed:
            continue
        ends = context.stated_range(name)
        if ends is None or name in context.fixed:
            fixed.add(name)
            continue
        general.add(name)
        waiting |= free_symbols(ends[0]) | free_symbols(ends[1])
        for a, b in pairs:
            if name in free_symbols(a) | free_symbols(b):
                waiting |= free_symbols(a) | free_symbols(b)
    return general, fixed


def _binders(expr: Any) -> set[Any]:
    return {limit[0] for node in expr.atoms(sympy.Sum, sympy.Product) for limit in node.limits}


def vacuous_indices(context: Context, *exprs: Any) -> set[Any]:
    """Ranged indices of these expressions that the statement's sides don't have, and that may have no value.

    An equality that holds for each of their values says nothing where there is none, so it is no evidence for the
    sides. An index surely has a value when its range, in sizes and indices of the sides, is not empty by the stated
    least sizes, and no condition sets it apart from an index of the sides or from another such index.
    """
    ranged = {read(a.index) for a in context.assumptions if isinstance(a, InRange)}
    extra = (ranged & set().union(*(free_symbols(read(e)) for e in exprs))) - context.fixed
    if not extra:
        return extra
    taken = extra | context.fixed
    doubtful = set()
    for one in context.assumptions:
        if isinstance(one, Distinct):
            parts = {read(one.first), read(one.second)}
            names = set().union(*(free_symbols(p) for p in parts))
            doubtful |= names & extra if not parts - taken or len(parts & ranged) < 2 else set()
        elif isinstance(one, Ordered) and not of_reals(one):
            doubtful |= extra & set().union(*(free_symbols(read(e)) for e in (one.lower, one.middle, one.upper)))
    for name in extra - doubtful:
        low, high = context.stated_range(name) or (sympy.Integer(1), sympy.Integer(0))
        known = not ranged & (free_symbols(low) | free_symbols(high)) - context.fixed
        once = sum(a.index == name for a in context.assumptions if isinstance(a, InRange)) == 1
        if not (known and once and nonempty(low, high, context)):
            doubtful.add(name)
    return doubtful


def positive_denominators(context: Context, *exprs: Any) -> tuple[Positive, ...]:
    """Conditions that need not be stated: denominators without bound indices that are positive by their structure."""
    found: dict[Any, Positive] = {}
    for expr in exprs:
        nodes = list(sympy.preorder_traversal(expr))
        bound = _binders(expr)
        for node in nodes:
            below = isinstance(node, sympy.Pow) and node.exp.is_negative and not free_symbols(node.base) & bound
            if below and sign(node.base, context) is Sign.POSITIVE:
                found[node.base] = Positive(node.base)
    return tuple(found.values())


def of_reals(one: Ordered) -> bool:
    """Whether an order is one of real values: no equality needs it, and the first checker reads orders of sizes."""
    ends = [read(e) for e in (one.lower, one.middle, one.upper)]
    return any(e.has(sympy.Indexed) or any(not s.is_integer for s in free_symbols(e)) for e in ends)
