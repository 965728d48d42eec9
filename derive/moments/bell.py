"""Moments from cumulants, and of sums of independent copies, for several variables at once.

Guarantees: exact recursions that take out the block of one element: the complete Bell polynomials, written for
multisets so that alike elements are counted and not repeated.
Does not: know any law; the moments or cumulants of one copy are given as a function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from math import comb
from typing import Any

from derive.moments import algebra
from derive.moments.algebra import Poly

# A multiset of hashable things, in one canonical order.
Bag = tuple[tuple[Any, int], ...]


def bag_of(items: Counter[Any]) -> Bag:
    return tuple(sorted(((x, c) for x, c in items.items() if c), key=lambda pair: str(pair[0])))


def moments_of_sums(bag: Bag, over: Callable[[Poly], Poly], one: Callable[[Bag], Poly]) -> Poly:
    """E Π Y for sums Y = Σ_c y(c) of independent terms; one(bag) is E Π y(c) at one c.

    over(κ) is Σ_c κ(c): d times κ for d terms that are alike; a sum where fixed numbers make them differ.
    """
    moments: dict[Bag, Poly] = {}
    cumulants: dict[Bag, Poly] = {}
    single = cache(one)

    def moment(whole: Bag) -> Poly:
        if not whole:
            return algebra.constant(1)
        if whole not in moments:
            terms = [
                algebra.scale(algebra.multiply(over(cumulant(block)), moment(rest)), ways)
                for block, rest, ways in _blocks(whole)
            ]
            moments[whole] = algebra.add(*terms)
        return moments[whole]

    def cumulant(whole: Bag) -> Poly:
        if whole not in cumulants:
            terms = [
                algebra.scale(algebra.multiply(cumulant(block), single(rest)), -ways)
                for block, rest, ways in _blocks(whole)
                if rest
            ]
            cumulants[whole] = algebra.add(single(whole), *terms)
        return cumulants[whole]

    return moment(bag)


def moments_from_cumulants(bag: Bag, cumulant: Callable[[Bag], Poly]) -> Poly:
    """E of a product from joint cumulants, by the block of its first element."""
    known: dict[Bag, Poly] = {(): algebra.constant(1)}

    def moment(whole: Bag) -> Poly:
        if whole not in known:
            terms = []
            for block, rest, ways in _blocks(whole):
                weight = cumulant(block)
                if weight:
                    terms.append(algebra.scale(algebra.multiply(weight, moment(rest)), ways))
            known[whole] = algebra.add(*terms)
        return known[whole]

    return moment(bag)


def _blocks(bag: Bag) -> Iterator[tuple[Bag, Bag, int]]:
    """All (block, rest, ways) where the block holds one chosen element of the bag, alike elements counted by ways."""
    (first, times), others = bag[0], bag[1:]
    available = [(first, times - 1), *others]

    def choose(left: list[tuple[Any, int]]) -> Iterator[tuple[list[int], int]]:
        if not left:
            yield [], 1
            return
        for tail, ways in choose(left[1:]):
            for taken in range(left[0][1] + 1):
                yield [taken, *tail], ways * comb(left[0][1], taken)

    for taken, ways in choose(available):
        counts = [taken[0] + 1, *taken[1:]]
        block = tuple((x, t) for (x, _), t in zip(bag, counts, strict=True) if t)
        rest = tuple((x, c - t) for (x, c), t in zip(bag, counts, strict=True) if c - t)
        yield block, rest, ways
