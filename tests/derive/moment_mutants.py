"""Wrong right sides for a moment claim, made from the right one: each differs from it as an expression."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sympy

from derive.assumptions import AtLeast
from derive.catalogue import Claim
from derive.moments import algebra
from derive.moments.checking import open_symbols
from derive.moments.definitions import opened
from derive.verdict import Verdict

PARTNERS = {"mu_q": "mu_k", "sigma_q": "sigma_k", "d_k": "d_model", "n": "m"}


def judged(claim: Claim, rhs: Any, *, lhs: Any = None, assumptions: tuple[Any, ...] | None = None) -> Verdict:
    """The verdict of the claim with parts of it replaced."""
    lhs = claim.lhs if lhs is None else lhs
    laws = claim.assumptions if assumptions is None else assumptions
    step = replace(claim.steps[0], lhs=lhs, rhs=rhs, assumptions=laws)
    return replace(claim, lhs=lhs, rhs=rhs, steps=(step,), assumptions=laws).prove()


def sizes(claim: Claim) -> list[Any]:
    """Sizes that either side depends on, abbreviations written out."""
    sides = (opened(side, claim.assumptions) for side in (claim.lhs, claim.rhs))
    found: set[Any] = set().union(*(open_symbols(side) for side in sides))
    return sorted((s for s in found if s.is_integer and s.is_nonnegative), key=str)


def with_sizes_positive(claim: Claim) -> tuple[Any, ...]:
    """The claim's assumptions and that no size is 0, so that a mutant may divide by one."""
    return (*claim.assumptions, *(AtLeast(s, 1) for s in sizes(claim)))


def mutants(claim: Claim) -> list[Any]:
    """All wrong right sides that the generator knows, without repetition."""
    found: list[Any] = []
    for one in _candidates(claim):
        if not algebra.same(one, claim.rhs) and not any(one == other for other in found):
            found.append(one)
    return found


def replaced(expr: Any, changes: dict[Any, Any]) -> Any:
    """Put in, but not inside entries or sums over them: an array keeps its shape."""
    held = {node: sympy.Dummy() for node in expr.atoms(sympy.Sum)}
    held |= {node: sympy.Dummy() for node in expr.xreplace(held).atoms(sympy.Indexed)}
    return expr.xreplace(held).xreplace(changes).xreplace({d: node for node, d in held.items()})


def _candidates(claim: Claim) -> Iterator[Any]:
    rhs = claim.rhs
    if rhs == 0:
        yield from _not_zero(claim)
        return
    yield from (rhs * 2, rhs / 2, -rhs, sympy.S.Zero)
    terms = sympy.Add.make_args(sympy.expand(rhs))
    if len(terms) > 1:
        yield from (rhs - term for term in terms)
        yield from (rhs - 2 * term for term in terms)
    entries = sorted((e for e in rhs.atoms(sympy.Indexed) if str(e.base) == "G"), key=str)
    rows = sorted({r for e in entries for r in e.indices}, key=str)
    for entry in entries:
        yield from (rhs.xreplace({entry: entry.base[r, entry.indices[1]]}) for r in rows if r != entry.indices[0])
        yield rhs.xreplace({entry: entry**2})
    for size in sizes(claim):
        yield from (rhs * size, rhs * sympy.sqrt(size), rhs / size)
        if size in open_symbols(rhs):
            yield replaced(rhs, {size: size + 1})
    for symbol in sorted((s for s in open_symbols(rhs) if not s.is_integer), key=str):
        yield replaced(rhs, {symbol: symbol**2})
        yield replaced(rhs, {symbol: sympy.S.One})
    by_name = {s.name: s for s in open_symbols(rhs)}
    for a, b in PARTNERS.items():
        if a in by_name and b in by_name:
            yield replaced(rhs, {by_name[a]: by_name[b], by_name[b]: by_name[a]})
            yield replaced(rhs, {by_name[a]: by_name[b]})
    yield from (rhs**2, rhs + 1, rhs - 1)


def _not_zero(claim: Claim) -> Iterator[Any]:
    for size in sizes(claim):
        yield from (size, -size, size**2, 1 / size, sympy.sqrt(size))
    yield from (sympy.S.One, sympy.S.NegativeOne, sympy.Rational(1, 1000))
