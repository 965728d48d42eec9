"""D · D⁻¹ = 1 as a rewriting rule, for a sum D that is never 0.

With D = lead + rest, a term that holds lead · D^p (p < 0) becomes D^(p+1) − rest · D^p. It works under any binder, so
common denominators need no other rule in most statements.

Guarantees: the rule is applied only where D ≠ 0 follows from the facts and the term's own ranges; a denominator's
ranges are kept as brackets when its sum is absorbed.
Does not: complete the rules of two denominators with each other (partial fractions; see `derive.normal`).
"""

from __future__ import annotations

from fractions import Fraction

from derive.binders import name_binders
from derive.index import Facts, Ix
from derive.ranges import limits, reduce_bounds
from derive.signs import Environment, is_defined, is_nonzero
from derive.terms import Atom, Mono, Poly, Power, merged, wrap


def absorb(mono: Mono, facts: Facts, env: Environment, order: int = 0, blocked: set[str] | None = None) -> Poly | None:
    """One application of the rule to a term, or None.

    order: which of `ORDERS` chooses the lead. blocked: collects denominators that aren't known to be non-zero.
    """
    for atom, exponent in mono.factors:
        if atom.kind != "pow" or exponent >= 0:
            continue
        base = atom.parts[0]
        lead, c = lead_term(base, order)
        rest = base - Poly.mono(lead, c)
        without = Mono(
            mono.binders,
            mono.bounds,
            mono.equations,
            ((a, p) for a, p in mono.factors if a != atom),
            mono.argument,
        )
        for quotient in _quotients(without, lead, atom, facts, env):
            inner = facts.given(quotient.bounds)
            if not is_nonzero(base, env, inner):
                if blocked is not None:
                    blocked.add(base.key)
                continue
            once = _times_inside(quotient, Poly.atom(atom, exponent + 1) if exponent != -1 else Poly.const(1))
            again = _times_inside(quotient, rest.times(Poly.atom(atom, exponent)))
            return (once - again).scaled(1 / c)
    return None


def lead_term(base: Poly, order: int = 0) -> tuple[Mono, Fraction]:
    """The term of a denominator that the rule removes: the one with most binders, and then by the order chosen."""
    ends = {0: (True, False), 1: (False, True), 2: (False, False)}[order]

    def rank(term: tuple[Mono, Fraction]) -> tuple[int, bool, bool, int, str]:
        m = term[0]
        real, exponential = bool(m.factors), m.argument is not None
        return (
            len(m.binders),
            real or exponential,
            (real and ends[0]) or (exponential and ends[1]),
            len(m.factors) + exponential,
            m.key,
        )

    return max(base.terms, key=rank)


# Orders of terms in `lead_term`: factors first, exponentials first, neither. Any of them is sound.
ORDERS = (0, 1, 2)


def _times_inside(mono: Mono, factor: Poly) -> Poly:
    """mono · factor, where factor may mention mono's binders: they stay bound around the whole."""
    return wrap(Mono((), mono.bounds, mono.equations, mono.factors, mono.argument), mono.binders, factor)


def _quotients(mono: Mono, lead: Mono, denominator: Atom, facts: Facts, env: Environment) -> list[Mono]:
    """Terms q with q · lead = mono, found by structure."""
    if not lead.binders:
        return _plain_quotients(mono, lead)
    found = []
    for binders in _components(mono, denominator.free):
        if len(binders) != len(lead.binders):
            continue
        found += _component_quotients(mono, binders, lead, facts, env)
    return found


def _plain_quotients(mono: Mono, lead: Mono) -> list[Mono]:
    if lead.bounds or lead.equations:
        return []
    for a, p in lead.factors:
        have = mono.power_of(a)
        if (p > 0 and have < p) or (p < 0 and have > p):
            return []
    if not lead.factors:
        if lead.argument is None or mono.argument is None:
            return []
        table = dict(mono.argument.terms)
        m, c = lead.argument.terms[0]
        if table.get(m, Fraction(0)) / c < 1:
            return []
    inverse = Mono(factors=((a, -p) for a, p in lead.factors), argument=-lead.argument if lead.argument else None)
    return [
        Mono(
            mono.binders,
            mono.bounds,
            mono.equations,
            merged((*mono.factors, *inverse.factors)),
            _sum(mono.argument, inverse.argument),
        )
    ]


def _sum(a: Poly | None, b: Poly | None) -> Poly | None:
    return a + b if a and b else a or b


def _components(mono: Mono, fixed: frozenset[str]) -> list[tuple[str, ...]]:
    """Classes of binders that no factor, bracket or exponent term ties to each other, other than through `fixed`."""
    parent = {b: b for b in mono.binders if b not in fixed}

    def root(b: str) -> str:
        while parent[b] != b:
            b = parent[b]
        return b

    parts = [a.free for a, _ in mono.factors]
    parts += [x.free for x in (*mono.bounds, *mono.equations)]
    parts += [m.free for m, _ in mono.argument.terms] if mono.argument else []
    for free in parts:
        inside = [b for b in free if b in parent]
        for b in inside[1:]:
            parent[root(b)] = root(inside[0])
    classes: dict[str, list[str]] = {}
    for b in sorted(parent):
        classes.setdefault(root(b), []).append(b)
    return [tuple(group) for group in classes.values()]


def _component_quotients(
    mono: Mono, binders: tuple[str, ...], lead: Mono, facts: Facts, env: Environment
) -> list[Mono]:
    """The quotient with the component's own bracket dropped, and with what that bracket implies kept.

    Both equal mono / lead where they are defined: the sum over an empty range is 0 either way. The second may be the
    only one in whose ranges the denominator, or another power in the term, is known to be defined.
    """
    inside = frozenset(x for x in mono.bounds if x.free & set(binders))
    implied = _projection(inside, binders)
    bare = _component_quotient(mono, binders, lead, facts, frozenset())
    found = [bare] if bare is not None and is_defined(bare, env, facts) else []
    if implied - mono.bounds or not found:
        kept = _component_quotient(mono, binders, lead, facts, implied)
        found += [kept] if kept is not None else []
    return found


def _component_quotient(
    mono: Mono, binders: tuple[str, ...], lead: Mono, facts: Facts, implied: frozenset[Ix]
) -> Mono | None:
    own = set(binders)
    inside_bounds = frozenset(x for x in mono.bounds if x.free & own)
    outside_bounds = (mono.bounds - inside_bounds) | implied
    inside_argument, outside_argument = _split(mono.argument, own)
    component = Mono(
        binders,
        inside_bounds,
        (x for x in mono.equations if x.free & own),
        ((a, p) for a, p in mono.factors if a.free & own),
        inside_argument,
    )
    lead_own = set(lead.binders)
    lead_inside, lead_outside = _split(lead.argument, lead_own)
    target = Mono(
        lead.binders,
        (x for x in lead.bounds if x.free & lead_own),
        (x for x in lead.equations if x.free & lead_own),
        ((a, p) for a, p in lead.factors if a.free & lead_own),
        lead_inside,
    )
    if any(not x.free & lead_own for x in (*lead.bounds, *lead.equations)):
        return None
    inner = facts.given(outside_bounds)
    if name_binders(reduce_bounds(component, inner)).key != name_binders(reduce_bounds(target, inner)).key:
        return None
    loose = [(a, p) for a, p in lead.factors if not a.free & lead_own]
    outside = [(a, p) for a, p in mono.factors if not a.free & own]
    table: dict[Atom, Power] = dict(outside)
    if any(table.get(a, Power(0)) < p if p > 0 else table.get(a, Power(0)) > p for a, p in loose):
        return None
    return Mono(
        tuple(b for b in mono.binders if b not in own),
        outside_bounds,
        (x for x in mono.equations if not x.free & own),
        merged((*outside, *((a, -p) for a, p in loose))),
        _sum(outside_argument, -lead_outside if lead_outside else None),
    )


def _split(argument: Poly | None, own: set[str]) -> tuple[Poly | None, Poly | None]:
    if argument is None:
        return None, None
    inside = Poly({m: c for m, c in argument.terms if m.free & own})
    return inside, argument - inside


def _projection(bounds: frozenset[Ix], binders: tuple[str, ...]) -> frozenset[Ix]:
    """What the bounds imply without the binders: each lower limit ≤ each upper one, binder after binder."""
    current = bounds
    for b in binders:
        ends = limits(current, b)
        rest = frozenset(x for x in current if b not in x.free)
        if ends is not None:
            rest |= {high - low for low in ends[0] for high in ends[1]}
        current = rest
    return frozenset(x for x in current if not x.is_constant)
