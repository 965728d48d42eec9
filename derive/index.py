"""Integer index expressions, and what can be concluded about them from known bounds.

Guarantees: `Ix` is an exact integer polynomial in named variables; `Facts.implies` answers True only when the bound
follows from the facts over the integers (Fourier–Motzkin elimination, with products of facts where an expression is
not linear). A False answer means "not shown", never "false".
Does not: decide all of integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from math import gcd

_LIMIT = 240  # constraints kept during elimination; beyond it the answer is "not shown"
Monomial = tuple[str, ...]


class Ix:
    """An integer polynomial, as i, i + m, n − 1, g·r + t: a sorted tuple of (sorted variables, coefficient)."""

    __slots__ = ("__dict__", "key", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self.key = "+".join(f"{c}*{'*'.join(m)}" if m else str(c) for m, c in terms) or "0"

    @staticmethod
    def of(table: Mapping[Monomial, int]) -> Ix:
        return Ix(tuple(sorted((m, c) for m, c in table.items() if c)))

    @staticmethod
    def var(name: str) -> Ix:
        return Ix((((name,), 1),))

    @staticmethod
    def const(value: int) -> Ix:
        return Ix((((), value),)) if value else Ix(())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ix) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Ix({self.key})"

    @cached_property
    def free(self) -> frozenset[str]:
        return frozenset(v for m, _ in self.terms for v in m)

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.terms[0][1] if self.terms and not self.terms[0][0] else 0

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    def as_variable(self) -> str | None:
        """The name, if the expression is one bare variable."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None

    def __add__(self, other: Ix) -> Ix:
        table = dict(self.terms)
        for m, c in other.terms:
            table[m] = table.get(m, 0) + c
        return Ix.of(table)

    def __neg__(self) -> Ix:
        return Ix(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Ix) -> Ix:
        return self + (-other)

    def plus(self, value: int) -> Ix:
        return self + Ix.const(value)

    def times(self, other: Ix) -> Ix:
        table: dict[Monomial, int] = {}
        for m, c in self.terms:
            for k, d in other.terms:
                word = tuple(sorted(m + k))
                table[word] = table.get(word, 0) + c * d
        return Ix.of(table)

    def substitute(self, values: Mapping[str, Ix]) -> Ix:
        """Every variable replaced at once."""
        if not (self.free & values.keys()):
            return self
        result = Ix(())
        for m, c in self.terms:
            part = Ix.const(c)
            for v in m:
                part = part.times(values.get(v, Ix.var(v)))
            result = result + part
        return result

    def linear_in(self, name: str) -> tuple[int, Ix] | None:
        """(coefficient, rest) when the variable occurs only linearly, alone, and at all; else None."""
        coefficient = 0
        rest = []
        for m, c in self.terms:
            if name not in m:
                rest.append((m, c))
            elif len(m) == 1:
                coefficient = c
            else:
                return None
        return (coefficient, Ix(tuple(rest))) if coefficient else None

    def bound_form(self) -> Ix:
        """The same bound `self ≥ 0` with its coefficients divided by their gcd, tightened over the integers."""
        divisor = 0
        for m, c in self.terms:
            if m:
                divisor = gcd(divisor, c)
        if divisor <= 1:
            return self
        return Ix.of({m: (c // divisor) for m, c in self.terms})  # floor tightens the constant term


class Facts:
    """Known bounds, each an `Ix` that is ≥ 0. Immutable; `given` returns a larger set."""

    def __init__(self, bounds: Iterable[Ix] = ()) -> None:
        self.bounds = frozenset(b.bound_form() for b in bounds if not (b.is_constant and b.constant >= 0))
        self._known: dict[Ix, bool] = {}
        self._children: dict[frozenset[Ix], Facts] = {}

    def given(self, bounds: Iterable[Ix]) -> Facts:
        extra = frozenset(bounds)
        if extra <= self.bounds:
            return self
        child = self._children.get(extra)
        if child is None:
            child = self._children[extra] = Facts(self.bounds | extra)
        return child

    def implies(self, bound: Ix) -> bool:
        """True when bound ≥ 0 follows from the facts."""
        if bound.is_constant:
            return bound.constant >= 0
        bound = bound.bound_form()
        known = self._known.get(bound)
        if known is None:
            known = self._known[bound] = self._follows(bound)
        return known

    def implies_zero(self, value: Ix) -> bool:
        return self.implies(value) and self.implies(-value)

    @cached_property
    def contradictory(self) -> bool:
        """True when no values of the variables meet the facts."""
        return _infeasible(self.bounds)

    def _follows(self, bound: Ix) -> bool:
        variable_part = bound.plus(-bound.constant)
        for fact in self.bounds:
            if fact.terms == bound.terms:
                return True
            if fact.plus(-fact.constant) == variable_part and fact.constant <= bound.constant:
                return True
        goal = (-bound).plus(-1)
        return _infeasible(_relevant(self.bounds, goal) | {goal})


def _relevant(bounds: frozenset[Ix], goal: Ix) -> frozenset[Ix]:
    """The facts that share variables with the goal, directly or through other facts."""
    seen = set(goal.free)
    chosen: set[Ix] = set()
    grew = True
    while grew:
        grew = False
        for fact in bounds - chosen:
            if fact.free & seen:
                chosen.add(fact)
                seen |= fact.free
                grew = True
    return frozenset(chosen)


def _infeasible(bounds: Iterable[Ix]) -> bool:
    rows = set(bounds)
    words = {m for b in rows for m, _ in b.terms if len(m) > 1}
    if words:
        rows |= _products(rows, words)
    current = {b.bound_form() for b in rows}
    while True:
        if any(b.is_constant and b.constant < 0 for b in current):
            return True
        current = _tightest(b for b in current if not b.is_constant)
        if not current:
            return False
        target = _cheapest(current)
        positive, negative, rest = [], [], set()
        for b in current:
            c = dict(b.terms).get(target, 0)
            if c > 0:
                positive.append((c, b))
            elif c < 0:
                negative.append((-c, b))
            else:
                rest.add(b)
        if len(positive) * len(negative) + len(rest) > _LIMIT:
            return False
        for c, p in positive:
            for d, q in negative:
                rest.add((p.times(Ix.const(d)) + q.times(Ix.const(c))).bound_form())
        current = rest


def _products(rows: set[Ix], words: set[Monomial]) -> set[Ix]:
    """Products of two facts (each ≥ 0, so the product is) that bring in no new non-linear monomial."""
    linear = [b for b in rows if all(len(m) < 2 for m, _ in b.terms)]
    found = set()
    for at, a in enumerate(linear):
        for b in linear[at:]:
            product = a.times(b)
            if all(len(m) < 2 or m in words for m, _ in product.terms):
                found.add(product)
    return found


def _tightest(bounds: Iterable[Ix]) -> set[Ix]:
    best: dict[Ix, int] = {}
    for b in bounds:
        part = b.plus(-b.constant)
        best[part] = min(best.get(part, b.constant), b.constant)
    return {part.plus(c) for part, c in best.items()}


def _cheapest(bounds: set[Ix]) -> Monomial:
    counts: dict[Monomial, list[int]] = {}
    for b in bounds:
        for m, c in b.terms:
            if m:
                counts.setdefault(m, [0, 0])[c > 0] += 1
    return min(counts, key=lambda m: (counts[m][0] * counts[m][1] - sum(counts[m]), m))
