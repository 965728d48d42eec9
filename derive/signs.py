"""What is known about signs: positive sums, non-negative terms, non-empty ranges.

Guarantees: an answer True follows from the stated side conditions alone. A sum is positive only if all its terms are
non-negative and one is positive over a range shown to be non-empty.
Does not: refute; False means "not shown".
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from derive.binders import canonical
from derive.index import Facts, Ix
from derive.terms import Atom, Mono, Poly, Power

UNKNOWN, NONNEGATIVE, POSITIVE = 0, 1, 2


@dataclass(frozen=True)
class Pattern:
    """An expression stated positive, for every value of `indices` that meets the bounds and differs where it must.

    Indices of the statement itself are not among them: what is stated of i is stated of that i alone.
    """

    poly: Poly
    indices: tuple[str, ...] = ()
    bounds: tuple[Ix, ...] = ()
    different: tuple[Ix, ...] = ()


@dataclass
class Environment:
    """Everything a statement's side conditions say, in our own terms.

    positive: names of variables that are > 0; nonzero: that are ≠ 0. patterns: expressions stated positive.
    zero_one: arrays of zeros and ones. distinct: differences of indices that are not 0.
    """

    facts: Facts = field(default_factory=Facts)
    positive: frozenset[str] = frozenset()
    nonzero: frozenset[str] = frozenset()
    patterns: list[Pattern] = field(default_factory=list)
    zero_one: frozenset[str] = frozenset()
    distinct: frozenset[Ix] = frozenset()

    def differ(self, difference: Ix) -> bool:
        return difference in self.distinct or -difference in self.distinct


def is_positive(poly: Poly, env: Environment, facts: Facts) -> bool:
    """True when poly > 0 follows."""
    if _stated(poly, env, facts):
        return True
    signs = [_term_sign(m, env, facts) if c > 0 else UNKNOWN for m, c in poly.terms]
    return bool(signs) and min(signs) >= NONNEGATIVE and max(signs) == POSITIVE


def is_nonnegative(poly: Poly, env: Environment, facts: Facts) -> bool:
    """True when poly ≥ 0 follows."""
    if _stated(poly, env, facts):
        return True
    return all(c > 0 and _term_sign(m, env, facts) >= NONNEGATIVE for m, c in poly.terms)


def is_nonzero(poly: Poly, env: Environment, facts: Facts) -> bool:
    """True when poly ≠ 0 follows: it or its negative is positive, or it is a product of factors that aren't 0."""
    if is_positive(poly, env, facts) or is_positive(-poly, env, facts):
        return True
    if len(poly.terms) != 1:
        return False
    mono = poly.terms[0][0]
    if mono.binders or mono.bounds or mono.equations:
        return False
    return all(_atom_nonzero(a, env, facts) for a, _ in mono.factors)


def _atom_nonzero(atom: Atom, env: Environment, facts: Facts) -> bool:
    if atom.kind == "var" and atom.name in env.nonzero:
        return True
    if atom.kind == "pow":
        return is_nonzero(atom.parts[0], env, facts)
    return atom_sign(atom, env, facts) == POSITIVE


def is_defined(mono: Mono, env: Environment, facts: Facts) -> bool:
    """True when every power, root and logarithm in the term is shown to be defined under the facts and its bounds.

    A term need not be: its brackets may be what keeps a denominator from 0, and then they must stay.
    """
    inner = facts.given(mono.bounds)
    for atom, power in mono.factors:
        if power < 0 and not _atom_nonzero(atom, env, inner):
            return False
        if power.denominator != 1 and atom_sign(atom, env, inner) == UNKNOWN:
            return False
        if atom.kind == "fn" and atom.name in PARTIAL and not is_positive(atom.parts[0], env, inner):
            return False
        if not all(is_defined(m, env, inner) for part in atom.parts for m, _ in part.terms):
            return False
    return mono.argument is None or all(is_defined(m, env, inner) for m, _ in mono.argument.terms)


# Functions that need a positive argument here.
PARTIAL = frozenset({"log", "gamma", "loggamma"})


def _term_sign(mono: Mono, env: Environment, facts: Facts) -> int:
    inner = facts.given(mono.bounds)
    sign = POSITIVE
    for atom, power in mono.factors:
        sign = min(sign, _power_sign(atom, power, env, inner))
    if sign == POSITIVE and not (nonempty(mono, facts)):
        return NONNEGATIVE
    return sign


def _power_sign(atom: Atom, power: Power, env: Environment, facts: Facts) -> int:
    sign = atom_sign(atom, env, facts)
    if sign == POSITIVE:
        return POSITIVE
    even = power.denominator == 1 and power.numerator % 2 == 0
    return NONNEGATIVE if even else sign


def atom_sign(atom: Atom, env: Environment, facts: Facts) -> int:
    """What is known of one factor's sign."""
    if atom.kind == "prime":
        return POSITIVE
    if atom.kind == "var":
        if atom.name in env.positive or facts.implies(Ix.var(atom.name).plus(-1)):
            return POSITIVE
        return NONNEGATIVE if facts.implies(Ix.var(atom.name)) else UNKNOWN
    if atom.kind == "pow":
        base = atom.parts[0]
        if is_positive(base, env, facts):
            return POSITIVE
        return NONNEGATIVE if is_nonnegative(base, env, facts) else UNKNOWN
    if _stated(Poly.atom(atom), env, facts):
        return POSITIVE
    if atom.kind == "at" and atom.name in env.zero_one:
        return NONNEGATIVE
    if atom.kind == "fn" and atom.name == "Abs":
        return NONNEGATIVE
    if atom.kind == "fn" and atom.name == "cosh":
        return POSITIVE
    return UNKNOWN


def _stated(poly: Poly, env: Environment, facts: Facts) -> bool:
    """True when the sum is an instance of an expression that was stated positive."""
    if not env.patterns:
        return False
    key = canonical(poly).key
    places = _places(poly)
    for pattern in env.patterns:
        for chosen in itertools.product(places, repeat=len(pattern.indices)):
            values = dict(zip(pattern.indices, chosen, strict=True))
            if canonical(pattern.poly.substitute(values)).key != key:
                continue
            if all(facts.implies(b.substitute(values)) for b in pattern.bounds) and all(
                env.differ(d.substitute(values)) for d in pattern.different
            ):
                return True
    return False


def _places(poly: Poly) -> list[Ix]:
    """What the index of a stated condition may stand for in a sum: its free variables, and where it reads arrays."""
    found = {Ix.var(v).key: Ix.var(v) for v in poly.free}
    for mono, _ in poly.terms:
        for atom, _ in mono.factors:
            if atom.kind == "at" and not mono.binders:
                found |= {ix.key: ix for ix in atom.indices}
    return [found[key] for key in sorted(found)]


def nonempty(mono: Mono, facts: Facts) -> bool:
    """True when the brackets are met by some value of the binders, shown by a witness built from the bounds."""
    return _witness(mono.binders, tuple(mono.bounds), tuple(mono.equations), facts)


def _witness(binders: tuple[str, ...], bounds: tuple[Ix, ...], equations: tuple[Ix, ...], facts: Facts) -> bool:
    if not binders:
        return all(facts.implies(b) for b in bounds) and all(facts.implies_zero(e) for e in equations)
    for name in binders:
        rest = tuple(b for b in binders if b != name)
        for bound in sorted((*bounds, *equations), key=lambda b: b.key):
            linear = bound.linear_in(name)
            if linear is None or abs(linear[0]) != 1 or linear[1].free & set(rest):
                continue
            value = {name: -linear[1] if linear[0] == 1 else linear[1]}
            if _witness(
                rest,
                tuple(b.substitute(value) for b in bounds),
                tuple(e.substitute(value) for e in equations),
                facts,
            ):
                return True
    return False
