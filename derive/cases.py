"""Brackets inside exponentials, powers and functions brought outside, by cases.

f([c] x + y) = [c] f(x + y) + (1 − [c]) f(y) for a bracket [c] that is 1 or 0.

Guarantees: the split is exact, since one of the two brackets is 1 and the other 0.
Does not: split on a bracket that mentions a binder of its own term.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from derive.index import Ix
from derive.terms import Atom, Mono, Poly


def split_case(mono: Mono) -> Poly | None:
    """The term split on the first bracket found inside one of its functions; None when there is none."""
    found = min(_brackets(mono), key=lambda b: (b[0], b[1].key), default=None)
    if found is None:
        return None
    is_equation, bracket = found
    inside = _with(mono, is_equation, bracket, holds=True)
    outside = _with(mono, is_equation, bracket, holds=False)
    if is_equation:
        equal = frozenset({bracket})
        return (
            Poly.mono(outside) + Poly.mono(_also(inside, equations=equal)) - Poly.mono(_also(outside, equations=equal))
        )
    opposite = (-bracket).plus(-1)
    return Poly.mono(_also(inside, bounds=frozenset({bracket}))) + Poly.mono(
        _also(outside, bounds=frozenset({opposite}))
    )


def _also(mono: Mono, bounds: frozenset[Ix] = frozenset(), equations: frozenset[Ix] = frozenset()) -> Mono:
    return Mono(mono.binders, mono.bounds | bounds, mono.equations | equations, mono.factors, mono.argument)


def _parts(mono: Mono) -> Iterator[Poly]:
    for a, _ in mono.factors:
        yield from a.parts
    if mono.argument:
        yield mono.argument


def first_case(poly: Poly) -> tuple[bool, Ix] | None:
    """The first bracket of a sum that mentions no binder of its own term: (is it an equation, the bracket)."""
    return min(_free_brackets(poly), key=lambda b: (b[0], b[1].key), default=None)


def poly_in_case(poly: Poly, is_equation: bool, bracket: Ix, *, holds: bool) -> Poly:
    """The sum where the bracket is 1 (it leaves its terms) or 0 (its terms leave)."""
    total: dict[Mono, Fraction] = {}
    for m, c in poly.terms:
        own = m.equations if is_equation else m.bounds
        kept = m
        if bracket in own:
            if not holds:
                continue
            rest = own - {bracket}
            bounds, equations = (m.bounds, rest) if is_equation else (rest, m.equations)
            kept = Mono(m.binders, bounds, equations, m.factors, m.argument)
        total[kept] = total.get(kept, Fraction(0)) + c
    return Poly(total)


def _brackets(mono: Mono) -> Iterator[tuple[bool, Ix]]:
    for part in _parts(mono):
        yield from _free_brackets(part)


def _free_brackets(poly: Poly) -> Iterator[tuple[bool, Ix]]:
    for m, _ in poly.terms:
        own = set(m.binders)
        for is_equation, brackets in ((False, m.bounds), (True, m.equations)):
            for b in brackets:
                if not b.free & own:
                    yield is_equation, b


def _with(mono: Mono, is_equation: bool, bracket: Ix, *, holds: bool) -> Mono:
    """The term with the bracket known to be 1 (it leaves) or 0 (its terms leave)."""

    def reduced(poly: Poly) -> Poly:
        return poly_in_case(poly, is_equation, bracket, holds=holds)

    factors = [
        (Atom(a.kind, a.name, a.indices, tuple(reduced(p) for p in a.parts)) if a.parts else a, e)
        for a, e in mono.factors
    ]
    argument = reduced(mono.argument) if mono.argument else None
    return Mono(mono.binders, mono.bounds, mono.equations, factors, argument)
