"""Canonical names for bound indices, so that terms equal up to renaming get equal keys.

Guarantees: `canonical` only ever renames binders, so a wrong order could miss an equality and never invent one. A
binder's name carries the height of its term (inner sums are lower), so no name can be captured.
Does not: find every symmetry of a term with more than `_MOST` equivalent orders; it then takes one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from zlib import crc32

from derive.index import Ix
from derive.terms import Atom, Mono, Poly

_MOST = 720
_SELF, _PLAIN = 0x5E1F, 0xB1D
Colors = Mapping[str, int]


def canonical(poly: Poly) -> Poly:
    """The same sum with canonical binder names at every level."""
    found = _cache.get(poly.key)
    if found is None:
        table: dict[Mono, object] = {}
        for m, c in poly.terms:
            named = name_binders(m)
            table[named] = table.get(named, 0) + c  # type: ignore[operator]
        found = Poly(table)  # type: ignore[arg-type]
        if len(_cache) > 20000:
            _cache.clear()
        _cache[poly.key] = found
        _cache[found.key] = found
    return found


_cache: dict[str, Poly] = {}


def forget() -> None:
    """Drop the names that were worked out before, so that a measurement starts cold."""
    _cache.clear()


def name_binders(mono: Mono) -> Mono:
    """The term with canonical names: of all orders its structure can't tell apart, the one with the least key."""
    best: Mono | None = None
    for names in orders(mono):
        candidate = _inner(mono.renamed(names))
        candidate = Mono(
            tuple(sorted(candidate.binders)),
            candidate.bounds,
            candidate.equations,
            candidate.factors,
            candidate.argument,
        )
        if best is None or candidate.key < best.key:
            best = candidate
    assert best is not None
    return best


def orders(mono: Mono) -> Iterator[dict[str, str]]:
    """Renamings of the binders to canonical names, one for each order that the structure leaves open."""
    if not mono.binders:
        yield {}
        return
    level = height(mono)
    while any(v.startswith(f"@{level}.") for v in mono.free):
        level += 1  # a name that is free here belongs to an outer scope
    colors = binder_colors(mono)
    classes: dict[int, list[str]] = {}
    for b in sorted(mono.binders):
        classes.setdefault(colors[b], []).append(b)
    count = 1
    for group in classes.values():
        for k in range(2, len(group) + 1):
            count *= k
    groups = [classes[c] for c in sorted(classes)]
    choices = [list(itertools.permutations(g)) if count <= _MOST else [tuple(g)] for g in groups]
    for choice in itertools.product(*choices):
        flat = [b for group in choice for b in group]
        yield {b: f"@{level}.{k:02d}" for k, b in enumerate(flat)}


def height(mono: Mono) -> int:
    """1 + the height of the highest sum inside; 0 without a sum."""
    inner = max((_poly_height(p) for p in _parts(mono)), default=0)
    return inner + 1 if mono.binders else inner


def _poly_height(poly: Poly) -> int:
    known = poly.__dict__.get("height")
    if known is None:
        known = poly.__dict__["height"] = max((height(m) for m, _ in poly.terms), default=0)
    return known


def _parts(mono: Mono) -> Iterator[Poly]:
    for a, _ in mono.factors:
        yield from a.parts
    if mono.argument:
        yield mono.argument


def _inner(mono: Mono) -> Mono:
    """Canonical names inside the term's factors and exponent."""
    if all(not p.terms or _poly_height(p) == 0 for p in _parts(mono)):
        return mono
    factors = (
        (Atom(a.kind, a.name, a.indices, tuple(canonical(p) for p in a.parts)) if a.parts else a, e)
        for a, e in mono.factors
    )
    argument = canonical(mono.argument) if mono.argument else None
    return Mono(mono.binders, mono.bounds, mono.equations, factors, argument)


def binder_colors(mono: Mono) -> dict[str, int]:
    """A number for each binder that depends on how it occurs, and not on any binder's name."""
    colors = dict.fromkeys(mono.binders, _PLAIN)
    if len(mono.binders) < 2:
        return colors
    for _ in range(2):
        colors = {b: _mono_hash(mono, {**colors, b: hash((_SELF, colors[b]))}) for b in mono.binders}
        if len(set(colors.values())) == len(colors):
            break
    return colors


def body_hash(mono: Mono) -> int:
    """A hash of the term without its bounds, the same under every naming of its binders."""
    body = Mono(mono.binders, (), mono.equations, mono.factors, mono.argument)
    return _mono_hash(body, dict.fromkeys(mono.binders, _PLAIN))


def _name_hash(name: str, colors: Colors) -> int:
    known = colors.get(name)
    return crc32(name.encode()) if known is None else known


def _ix_hash(value: Ix, colors: Colors) -> int:
    return hash(tuple(sorted((tuple(sorted(_name_hash(v, colors) for v in m)), c) for m, c in value.terms)))


def _atom_hash(atom: Atom, colors: Colors) -> int:
    if atom.kind == "var":
        return hash((11, _name_hash(atom.name, colors)))
    head = crc32(f"{atom.kind}:{atom.name}".encode())
    return hash(
        (head, tuple(_ix_hash(i, colors) for i in atom.indices), tuple(_poly_hash(p, colors) for p in atom.parts))
    )


def _mono_hash(mono: Mono, colors: Colors) -> int:
    """The hash of a term in which every binder has a color already."""
    return hash(
        (
            len(mono.binders),
            tuple(sorted(_ix_hash(b, colors) for b in mono.bounds)),
            tuple(sorted(min(_ix_hash(e, colors), _ix_hash(-e, colors)) for e in mono.equations)),
            tuple(sorted((_atom_hash(a, colors), p.numerator, p.denominator) for a, p in mono.factors)),
            _poly_hash(mono.argument, colors) if mono.argument else 0,
        )
    )


def _poly_hash(poly: Poly, colors: Colors) -> int:
    relevant = tuple(sorted((v, colors[v]) for v in poly.free if v in colors))
    memo = poly.__dict__.setdefault("hashes", {})
    known = memo.get(relevant)
    if known is None:
        outer = dict(relevant)
        total = []
        for m, c in poly.terms:
            local = dict.fromkeys(m.binders, _PLAIN)
            if len(m.binders) > 1:
                local = {b: _mono_hash(m, {**outer, **local, b: _SELF}) for b in m.binders}
            total.append((_mono_hash(m, {**outer, **local}), c.numerator, c.denominator))
        known = memo[relevant] = hash(tuple(sorted(total)))
    return known
