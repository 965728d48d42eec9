"""Powers, exponentials and logarithms of sums: the part of a normal form that isn't polynomial.

Guarantees: each function returns a term equal to the one given wherever that is defined. A positive factor only leaves
a fractional power or a logarithm where its sign is known.
Does not: normalise what is inside; the caller has done that.
"""

from __future__ import annotations

from fractions import Fraction

from derive.binders import canonical, name_binders
from derive.index import Facts
from derive.signs import POSITIVE, Environment, atom_sign
from derive.terms import Atom, Mono, Poly, Power, times

ODD = frozenset({"tanh", "sinh", "erf", "sin", "atan", "asinh", "atanh"})
EVEN = frozenset({"cosh", "cos", "Abs"})


def rational_power(value: Fraction, exponent: Fraction) -> Poly:
    """value^exponent for a positive rational value (any rational exponent), or any value and an integer exponent."""
    if exponent.denominator == 1:
        return Poly.const(value ** int(exponent))
    result = Poly.const(1)
    for prime, count in _factorised(value).items():
        power = count * exponent
        whole = power.numerator // power.denominator
        part = Poly.const(Fraction(prime) ** whole)
        if power != whole:
            part = part.times(Poly.atom(Atom("prime", str(prime)), power - whole))
        result = result.times(part)
    return result


def _factorised(value: Fraction) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        p = 2
        while number > 1:
            if p * p > number:
                p = number
            while number % p == 0:
                found[p] = found.get(p, 0) + sign
                number //= p
            p += 1
    return found


def power(base: Poly, exponent: Power, env: Environment, facts: Facts) -> Poly:
    """base^exponent with what can leave the power taken out of it: common factors, exp factors, the coefficient."""
    if exponent.denominator == 1 and exponent >= 0:
        return base.power(int(exponent))
    value = base.constant()
    if value is not None and value != 0 and (exponent.denominator == 1 or value > 0):
        return rational_power(value, exponent)
    if exponent > 1:
        whole = exponent.numerator // exponent.denominator
        return base.power(whole).times(power(base, exponent - whole, env, facts))
    coefficient, content, rest = split_content(base, env, facts, signed=exponent.denominator == 1)
    outside = Mono(
        factors=((a, p * exponent) for a, p in content.factors),
        argument=content.argument.scaled(exponent) if content.argument else None,
    )
    result = rational_power(coefficient, exponent).times(Poly.mono(outside))
    if rest.constant() == 1:
        return result
    return result.times(Poly.atom(Atom("pow", parts=(rest,)), exponent))


def split_content(poly: Poly, env: Environment, facts: Facts, *, signed: bool) -> tuple[Fraction, Mono, Poly]:
    """poly = coefficient · content · rest, where the content has no binder and rest doesn't depend on it.

    signed: any factor may leave (integer powers); else only factors known to be positive, and the coefficient is > 0.
    """
    candidates: dict[Atom, Power] = {}
    loose = [_loose_factors(m) for m, _ in poly.terms]
    for table in loose:
        for atom in table:
            candidates[atom] = min(t.get(atom, Power(0)) for t in loose)
    common = [(a, p) for a, p in candidates.items() if p and (signed or atom_sign(a, env, facts) == POSITIVE)]
    inverse = Mono(factors=((a, -p) for a, p in common))
    terms = [(times(m, inverse), c) for m, c in poly.terms]
    best: tuple[Fraction, Mono, Poly] | None = None
    least = min(_lead_key(m) for m, _ in terms)
    for mono, c in terms:
        if _lead_key(mono) != least:
            continue
        loose_argument = _loose_argument(mono)
        scale = c if signed else abs(c)
        shift = Mono(argument=-loose_argument)
        table2: dict[Mono, Fraction] = {}
        for m, d in terms:
            product = times(m, shift)
            table2[product] = table2.get(product, Fraction(0)) + d / scale
        rest = canonical(Poly(table2))
        content = Mono(factors=common, argument=loose_argument)
        if best is None or rest.key < best[2].key:
            best = (scale, content, rest)
    assert best is not None, "the content of an empty sum"
    return best


def _loose_factors(mono: Mono) -> dict[Atom, Power]:
    own = frozenset(mono.binders)
    return {a: p for a, p in mono.factors if not (a.free & own)}


def _loose_argument(mono: Mono) -> Poly:
    """The part of the exponent that depends on none of the term's binders."""
    own = frozenset(mono.binders)
    if mono.argument is None:
        return Poly({})
    return Poly({m: c for m, c in mono.argument.terms if not (m.free & own)})


def _lead_key(mono: Mono) -> tuple[int, str]:
    """An order of terms that doesn't change when all are multiplied by one exp factor."""
    bare = times(mono, Mono(argument=-_loose_argument(mono)))
    return (-len(mono.binders), name_binders(bare).key)


def logarithm(argument: Poly, env: Environment, facts: Facts) -> Poly:
    """log of a positive sum: exp factors, positive common factors and the coefficient leave as terms."""
    coefficient, content, rest = split_content(argument, env, facts, signed=False)
    result = content.argument or Poly({})
    for prime, count in _factorised(coefficient).items():
        result = result + Poly.atom(Atom("fn", "log", parts=(Poly.const(prime),))).scaled(count)
    for atom, p in content.factors:
        inner = atom.parts[0] if atom.kind == "pow" else Poly.atom(atom)
        result = result + Poly.atom(Atom("fn", "log", parts=(inner,))).scaled(p)
    if rest.constant() != 1:
        result = result + Poly.atom(Atom("fn", "log", parts=(rest,)))
    return result


def function(name: str, parts: tuple[Poly, ...], env: Environment, facts: Facts) -> Poly:
    """A function of sums, with log taken apart and the sign of odd and even functions made canonical."""
    if name == "log":
        return logarithm(parts[0], env, facts)
    if name in ODD | EVEN:
        if parts[0].is_zero:
            return Poly.const(1 if name in {"cosh", "cos"} else 0)
        flipped = canonical(-parts[0])
        if flipped.key < canonical(parts[0]).key:
            return Poly.atom(Atom("fn", name, parts=(flipped,))).scaled(-1 if name in ODD else 1)
    return Poly.atom(Atom("fn", name, parts=parts))


def split_exponent(argument: Poly) -> tuple[Poly, list[tuple[Poly, Fraction]]]:
    """exp(argument) = exp(rest) · ∏ base^power: each c·log(P) in the exponent leaves as P^c (P > 0, as log needs)."""
    rest: dict[Mono, Fraction] = {}
    leaving = []
    for m, c in argument.terms:
        plain = not m.binders and not m.bounds and not m.equations and m.argument is None
        atom, power = m.factors[0] if plain and len(m.factors) == 1 else (None, 0)
        if atom is not None and atom.kind == "fn" and atom.name == "log" and power == 1:
            leaving.append((atom.parts[0], c))
        else:
            rest[m] = c
    return Poly(rest), leaving
