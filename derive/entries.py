"""Array entries inside terms: which arrays a sum mentions, and entries replaced by what they are defined as.

Guarantees: replacement goes through powers, functions and exponents, and captures nothing.
Does not: know where a definition comes from.
"""

from __future__ import annotations

from collections.abc import Mapping

from derive.terms import Atom, Mono, Poly, Power, wrap


def array_names(poly: Poly) -> frozenset[str]:
    """Names of all arrays in a sum, at any depth."""
    known = poly.__dict__.get("arrays")
    if known is None:
        found: set[str] = set()
        for m, _ in poly.terms:
            for a, _ in m.factors:
                if a.kind == "at":
                    found.add(a.name)
                for p in a.parts:
                    found |= array_names(p)
            if m.argument:
                found |= array_names(m.argument)
        known = poly.__dict__["arrays"] = frozenset(found)
    return known


def replace_entries(poly: Poly, bodies: Mapping[str, tuple[tuple[str, ...], Poly]]) -> Poly:
    """Array entries replaced by their definitions, inside powers and functions too, capture avoided."""
    if not array_names(poly) & bodies.keys():
        return poly
    total = Poly({})
    for m, c in poly.terms:
        product = Poly.const(c)
        plain: list[tuple[Atom, Power]] = []
        for a, p in m.factors:
            if a.kind == "at" and a.name in bodies:
                names, body = bodies[a.name]
                value = body.substitute(dict(zip(names, a.indices, strict=True)))
                whole = p.denominator == 1 and p > 0
                product = product.times(value.power(int(p)) if whole else Poly.atom(Atom("pow", parts=(value,)), p))
            elif a.parts:
                plain.append((Atom(a.kind, a.name, a.indices, tuple(replace_entries(x, bodies) for x in a.parts)), p))
            else:
                plain.append((a, p))
        argument = replace_entries(m.argument, bodies) if m.argument else None
        frame = Mono((), m.bounds, m.equations, plain, argument)
        total = total + wrap(frame, m.binders, product)
    return total
