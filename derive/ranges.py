"""Brackets and ranges: deltas contracted, bounds reduced, empty-bodied sums counted, shifts undone, pieces joined.

Guarantees: each function returns a sum equal to the one given, as functions of the free variables within the facts.
Since a bracket is 1 or 0 over all integers, no step depends on a range being written the right way round.
Does not: split a range at a place nobody named (`join` puts pieces together instead).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import comb

from derive.binders import body_hash, name_binders
from derive.index import Facts, Ix
from derive.signs import Environment, is_defined
from derive.terms import Atom, Mono, Poly, substitute

_ZERO = Poly({})


def solve_equations(mono: Mono, facts: Facts, env: Environment) -> Poly | None:
    """Contract one equation: with a binder, substitute it; with free indices only, rename by it. None: no change."""
    for bound in mono.bounds:
        if -bound in mono.bounds:
            equations = mono.equations | {bound}
            return Poly.mono(Mono(mono.binders, mono.bounds - {bound, -bound}, equations, mono.factors, mono.argument))
    for equation in sorted(mono.equations, key=lambda e: e.key):
        others = mono.equations - {equation}
        if equation.is_constant:
            if equation.constant:
                return _ZERO
            return Poly.mono(Mono(mono.binders, mono.bounds, others, mono.factors, mono.argument))
        for b in mono.binders:
            linear = equation.linear_in(b)
            if linear is None or abs(linear[0]) != 1:
                continue
            value = -linear[1] if linear[0] == 1 else linear[1]
            open_term = Mono((), mono.bounds, others, mono.factors, mono.argument)
            return _bound(substitute(open_term, {b: value}), tuple(x for x in mono.binders if x != b))
        if not equation.free & set(mono.binders):
            if env.differ(equation) or facts.implies(equation.plus(-1)) or facts.implies((-equation).plus(-1)):
                return _ZERO
            if facts.implies_zero(equation):
                return Poly.mono(Mono(mono.binders, mono.bounds, others, mono.factors, mono.argument))
            renamed = _use_free_equation(mono, equation, others)
            if renamed is not None:
                return renamed
    return None


def _bound(poly: Poly, binders: tuple[str, ...]) -> Poly:
    """The binders put back on every term of a sum in which they are free."""
    table: dict[Mono, Fraction] = {}
    for m, c in poly.terms:
        whole = Mono((*m.binders, *binders), m.bounds, m.equations, m.factors, m.argument)
        table[whole] = table.get(whole, Fraction(0)) + c
    return Poly(table)


def _use_free_equation(mono: Mono, equation: Ix, others: frozenset[Ix]) -> Poly | None:
    """[i = j] f(i, j) = [i = j] f(i, i): the greatest variable that can be solved for goes."""
    for v in sorted(equation.free, reverse=True):
        linear = equation.linear_in(v)
        if linear is None or abs(linear[0]) != 1:
            continue
        rest = Mono(mono.binders, mono.bounds, others, mono.factors, mono.argument)
        value = -linear[1] if linear[0] == 1 else linear[1]
        if v not in rest.free:
            normal = equation if linear[0] == 1 else -equation
            if normal == equation:
                return None
            return Poly.mono(Mono(mono.binders, mono.bounds, others | {normal}, mono.factors, mono.argument))
        normal = Ix.var(v) - value
        return substitute(rest, {v: value}).where(equations=(normal,))
    return None


def solve_free(equation: Ix) -> dict[str, Ix] | None:
    """The substitution of one variable that an equation gives, if one occurs with coefficient ±1."""
    for v in sorted(equation.free, reverse=True):
        linear = equation.linear_in(v)
        if linear is not None and abs(linear[0]) == 1:
            return {v: -linear[1] if linear[0] == 1 else linear[1]}
    return None


def reduce_bounds(mono: Mono, facts: Facts) -> Mono:
    """Bounds that follow from the facts and the other bounds leave."""
    kept = set(mono.bounds)
    for bound in sorted(mono.bounds, key=lambda b: (len(b.free & set(mono.binders)), b.key)):
        if facts.given(kept - {bound}).implies(bound):
            kept.discard(bound)
    tight = {b.bound_form() for b in kept}
    if tight == mono.bounds:
        return mono
    return Mono(mono.binders, tight, mono.equations, mono.factors, mono.argument)


def limits(bounds: frozenset[Ix], binder: str) -> tuple[list[Ix], list[Ix]] | None:
    """(lower, upper) limits that the bounds give the binder; None when one isn't a limit with coefficient ±1."""
    lower, upper = [], []
    for bound in sorted(bounds, key=lambda b: b.key):
        if binder not in bound.free:
            continue
        linear = bound.linear_in(binder)
        if linear is None or abs(linear[0]) != 1:
            return None
        if linear[0] == 1:
            lower.append(-linear[1])
        else:
            upper.append(linear[1])
    return lower, upper


def count_binder(mono: Mono, facts: Facts, env: Environment) -> Poly | None:
    """A binder whose body is a power of itself (or doesn't mention it) sums to a polynomial in its limits.

    Σ_{c<d} 1/d is 0 and not d/d at d = 0: where the body may be undefined outside the range, the bracket that the
    range isn't empty stays.
    """
    for b in mono.binders:
        at = Atom("var", b)
        p = mono.power_of(at)
        if p.denominator != 1 or p < 0 or p > 8 or any(b in e.free for e in mono.equations):
            continue
        if any(b in a.free for a, _ in mono.factors if a != at) or (mono.argument and b in mono.argument.free):
            continue
        ends = limits(mono.bounds, b)
        if ends is None or len(ends[0]) != 1 or len(ends[1]) != 1:
            continue
        low, high = ends[0][0], ends[1][0]
        count = (high - low).plus(1)
        others = frozenset(x for x in mono.bounds if b not in x.free)
        body = [(a, k) for a, k in mono.factors if a != at]
        without = Mono((), others, mono.equations, body, mono.argument)
        needed = count if is_defined(without, env, facts) else count.plus(-1)
        if not facts.given(others).implies(needed):
            others |= {needed}
        rest = Mono((), others, mono.equations, body, mono.argument)
        value = Poly.mono(rest).times(_power_sum(int(p), low, high))
        return _bound(value, tuple(x for x in mono.binders if x != b))
    return None


def _power_sum(p: int, low: Ix, high: Ix) -> Poly:
    """Σ_{b=low}^{high} b^p for high ≥ low − 1 (Faulhaber's formula)."""
    if p == 0:
        return Poly.of_index((high - low).plus(1))
    return _faulhaber(p, Poly.of_index(high)) - _faulhaber(p, Poly.of_index(low.plus(-1)))


def _faulhaber(p: int, n: Poly) -> Poly:
    """Σ_{b=1}^{n} b^p as a polynomial in n, by Bernoulli numbers with B₁ = +1/2."""
    numbers = [Fraction(1)]
    for m in range(1, p + 1):
        numbers.append(-sum((comb(m + 1, k) * numbers[k] for k in range(m)), Fraction(0)) / (m + 1))
    numbers[1] = Fraction(1, 2)
    result = Poly({})
    for k in range(p + 1):
        result = result + n.power(p + 1 - k).scaled(comb(p + 1, k) * numbers[k] / (p + 1))
    return result


def undo_shift(mono: Mono) -> Poly | None:
    """f(j + m) summed over j = f(j) summed over the shifted range: prefer bare indices in the body. None: no change.

    Each change makes the indices that aren't bare fewer, or the term's key smaller with as many of them, so it ends.
    """
    here: tuple[int, str] | None = None
    for b in sorted(mono.binders):
        options: dict[Ix, Poly] = {}
        for place in _occurrences(mono):
            linear = place.linear_in(b)
            if linear is None or abs(linear[0]) != 1 or place.as_variable() == b:
                continue
            value = Ix.var(b) - linear[1] if linear[0] == 1 else linear[1] - Ix.var(b)
            if value not in options:
                open_term = Mono((), mono.bounds, mono.equations, mono.factors, mono.argument)
                options[value] = _bound(substitute(open_term, {b: value}), mono.binders)
        for new in options.values():
            if len(new.terms) != 1:
                continue
            here = here or (_strange(mono), name_binders(mono).key)
            candidate = new.terms[0][0]
            if (_strange(candidate), name_binders(candidate).key) < here:
                return new
    return None


def _strange(mono: Mono) -> int:
    """How many indices mention one of the term's binders and aren't a bare variable."""
    own = set(mono.binders)
    return sum(1 for x in _occurrences(mono) if x.free & own and x.as_variable() is None)


def _occurrences(mono: Mono) -> Iterator[Ix]:
    for a, _ in mono.factors:
        yield from a.indices
        for p in a.parts:
            for m, _ in p.terms:
                yield from _occurrences(m)
    if mono.argument:
        for m, _ in mono.argument.terms:
            yield from _occurrences(m)


def join(table: dict[Mono, Fraction], facts: Facts) -> dict[Mono, Fraction] | None:
    """Join terms with one body over ranges that meet: [P ∧ c] + [P ∧ ¬c] = [P] and [P] − [P ∧ c] = [P ∧ ¬c].

    None when nothing joins. Every join makes the number of terms smaller, or keeps it and moves coefficients.
    """
    groups: dict[int, list[Mono]] = {}
    for mono in table:
        if mono.bounds:
            groups.setdefault(body_hash(mono), []).append(mono)
    for group in groups.values():
        for a, b in itertools.combinations(sorted(group, key=lambda m: m.key), 2):
            if _bodies(a)[0].key != _bodies(b)[0].key:
                continue
            result = _join_pair(a, table[a], b, table[b], facts)
            if result is not None:
                new = dict(table)
                del new[a], new[b]
                for m, c in result:
                    m = name_binders(m)
                    new[m] = new.get(m, Fraction(0)) + c
                    if not new[m]:
                        del new[m]
                return new
    return None


def _bodies(mono: Mono) -> list[Mono]:
    """The term named by its body alone: [body, then the whole term under every naming that gives this body]."""
    known: list[Mono] | None = mono.__dict__.get("bodies")
    if known is None:
        known = mono.__dict__["bodies"] = _named_by_body(mono)
    return known


def _named_by_body(mono: Mono) -> list[Mono]:
    named: list[tuple[Mono, Mono]] = []
    for order in itertools.permutations(mono.binders) if len(mono.binders) <= 5 else [mono.binders]:
        names = {v: f"%join.{k:02d}" for k, v in enumerate(order)}
        whole = mono.renamed(names)
        whole = Mono(tuple(sorted(whole.binders)), whole.bounds, whole.equations, whole.factors, whole.argument)
        named.append((Mono(whole.binders, (), whole.equations, whole.factors, whole.argument), whole))
    least = min((n for n, _ in named), key=lambda m: m.key)
    return [least, *(w for n, w in named if n.key == least.key)]


def _join_pair(a: Mono, c: Fraction, b: Mono, d: Fraction, facts: Facts) -> list[tuple[Mono, Fraction]] | None:
    first = _bodies(a)[1]
    for second in _bodies(b)[1:]:
        union = _union(first.bounds, second.bounds, facts)
        if union is not None and c * d > 0:
            common = min(c, d) if c > 0 else max(c, d)
            whole = Mono(first.binders, union, first.equations, first.factors, first.argument)
            return [(whole, common), (first, c - common), (second, d - common)]
        for (big, e), (small, f) in (((first, c), (second, d)), ((second, d), (first, c))):
            difference = _difference(big.bounds, small.bounds, facts)
            if difference is not None and e * f < 0 and abs(f) <= abs(e):
                rest = Mono(big.binders, difference, big.equations, big.factors, big.argument)
                return [(rest, -f), (big, e + f)]
    return None


def _union(p: frozenset[Ix], q: frozenset[Ix], facts: Facts) -> frozenset[Ix] | None:
    for cut in p:
        opposite = (-cut).plus(-1)
        if opposite in q:
            both = (p - {cut}) | (q - {opposite})
            if all(facts.given(p).implies(x) for x in q - {opposite}) and all(
                facts.given(q).implies(x) for x in p - {cut}
            ):
                return both
    return None


def _difference(big: frozenset[Ix], small: frozenset[Ix], facts: Facts) -> frozenset[Ix] | None:
    """big ∖ small when small = big ∧ one more bound."""
    inner = facts.given(small)
    if not all(inner.implies(x) for x in big):
        return None
    outer = facts.given(big)
    extra = [x for x in small if not outer.implies(x)]
    if len(extra) != 1:
        return None
    return big | {(-extra[0]).plus(-1)}


def point_options(table: Mapping[Mono, Fraction]) -> Iterator[tuple[Mono, Mono, Mono, int]]:
    """Ways to move one end of a range by one: (term, term with the moved end, the term at the point, sign).

    sign 1: term + point = moved (the range grows); sign −1: term − point = moved (it shrinks).
    """
    for mono in sorted((m for m in table if m.bounds), key=lambda m: m.key):
        if not _has_point(mono, table):
            continue
        for cut in sorted(mono.bounds, key=lambda x: x.key):
            others = mono.bounds - {cut}
            for sign, step in ((1, 1), (-1, 0)):
                at_point = Mono(mono.binders, others, mono.equations | {cut.plus(step)}, mono.factors, mono.argument)
                moved = Mono(mono.binders, others | {cut.plus(sign)}, mono.equations, mono.factors, mono.argument)
                yield mono, moved, at_point, sign


def _signature(mono: Mono) -> tuple[str, ...]:
    return tuple(sorted(f"{a.kind}:{a.name}^{p}" for a, p in mono.factors if a.kind != "var"))


def _has_point(mono: Mono, table: Mapping[Mono, Fraction]) -> bool:
    """Whether some term could be this one at a point: the same factors under fewer binders or more equations."""
    mine, binders, equations = _signature(mono), len(mono.binders), len(mono.equations)
    return any(
        (len(m.binders) < binders or len(m.equations) > equations) and _signature(m) == mine for m in table if m != mono
    )
