"""Inputs at which a statement is tried: sizes, arrays, scalars and free indices that meet its assumptions.

Guarantees: sizes are drawn apart, so that a transposition shows; every array entry and scalar is a double, exactly;
what is drawn meets every assumption given as data, or the draw is refused.
Does not: read assumptions in words; they are returned, so that a report can say what was not enforced.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from compute.streams import Stream
from derive.assumptions import AtLeast, Defined, Distinct, InRange, Ordered, Positive, ZeroOne
from derive.language import Diff
from verify.crosschecking.arithmetic import Digits, Unsupported
from verify.crosschecking.evaluation import Evaluation

KNOWN = (AtLeast, Defined, Distinct, InRange, Ordered, Positive, ZeroOne)


@dataclass(frozen=True)
class Signature:
    """What a statement is about: arrays with their shapes, sizes, free indices, scalars, abbreviations."""

    arrays: Mapping[str, tuple[Any, ...]]
    sizes: tuple[Any, ...]
    indices: tuple[InRange, ...]
    scalars: tuple[Any, ...]
    definitions: tuple[Defined, ...]
    assumptions: tuple[Any, ...]


@dataclass(frozen=True)
class Inputs:
    """One draw. sizes: name → int; arrays: name → float64 array; scalars: name → float; places: free indices."""

    sizes: dict[str, int]
    arrays: dict[str, Any]
    scalars: dict[str, float]
    places: tuple[dict[Any, int], ...]

    def entries(self) -> dict[str, dict[tuple[int, ...], float]]:
        """Arrays as mappings from index tuples to numbers."""
        return {
            name: {place: float(array[place]) for place in np.ndindex(array.shape)}
            for name, array in self.arrays.items()
        }

    def numbers(self) -> dict[str, Any]:
        return {**self.sizes, **self.scalars}


def signature(sides: Iterable[Any], assumptions: Iterable[Any]) -> Signature:
    """Read the arrays, sizes and scalars of a statement off its own objects."""
    told = tuple(assumptions)
    definitions = tuple(a for a in told if isinstance(a, Defined))
    indices = {a.index: a for a in told if isinstance(a, InRange)}
    bases: dict[str, tuple[Any, ...]] = {}
    free: set[Any] = set()
    pending = [*sides, *(d.body for d in definitions)]
    binders = {i for d in definitions for i in d.indices}
    for side in pending:
        expr = sympy.sympify(side, strict=True)
        for node in sympy.preorder_traversal(expr):
            if isinstance(node, sympy.IndexedBase):
                bases[str(node.label)] = tuple(node.shape or ())
        free |= {s for s in _free(expr) if s not in binders}
    for shape in bases.values():
        free |= {s for length in shape for s in sympy.sympify(length).free_symbols}
    for one in told:
        for text in ("size", "lower", "middle", "upper"):
            part = getattr(one, text, None)
            free |= set(getattr(part, "free_symbols", ()))
    defined = {str(getattr(d.array, "label", d.array)) for d in definitions}
    names = set(bases)
    symbols = {s for s in free if isinstance(s, sympy.Symbol) and s.name not in names and s not in indices}
    sizes = tuple(sorted((s for s in symbols if s.is_integer), key=lambda s: s.name))
    scalars = tuple(sorted((s for s in symbols if not s.is_integer), key=lambda s: s.name))
    arrays = {name: shape for name, shape in sorted(bases.items()) if name not in defined}
    return Signature(arrays, sizes, tuple(indices.values()), scalars, definitions, told)


def _free(expr: Any) -> set[Any]:
    """Free symbols; those of a Diff's entry are free too."""
    found = set(expr.free_symbols)
    for node in expr.atoms(Diff):
        found |= set(node.entry.free_symbols)
    bound = {limits[0] for node in expr.atoms(sympy.Sum, sympy.Product) for limits in node.limits}
    return {s for s in found if s in expr.free_symbols or s not in bound}


def draw(sig: Signature, stream: Stream, *, smallest: int = 1, largest: int = 4, most_places: int = 24) -> Inputs:
    """Inputs that meet the assumptions. Raises Unsupported when none is found or a kind of assumption is not known."""
    strange = [a for a in sig.assumptions if not isinstance(a, (*KNOWN, str))]
    if strange:
        raise Unsupported(f"assumption {strange[0]} is about something that has no value at numbers")
    for _ in range(400):
        sizes = _sizes(sig, stream, smallest, largest)
        if _sizes_fit(sig, sizes):
            places = _places(sig, sizes, most_places, stream)
            if places:
                return Inputs(sizes, *_values(sig, sizes, stream), places)
    raise Unsupported("no sizes from 1 to 4 meet the assumptions")


def _sizes(sig: Signature, stream: Stream, smallest: int, largest: int) -> dict[str, int]:
    span = largest - smallest + 1
    return {s.name: smallest + int(stream.integers(span, (1,))[0]) for s in sig.sizes}


def _number(expr: Any, sizes: Mapping[str, int], at: Mapping[Any, int] | None = None) -> int:
    import mpmath

    return int(Evaluation(Digits(mpmath.mp), {}, sizes).value(expr, at))


def _sizes_fit(sig: Signature, sizes: Mapping[str, int]) -> bool:
    for one in sig.assumptions:
        try:
            if isinstance(one, AtLeast) and _number(one.size, sizes) < one.least:
                return False
            if isinstance(one, Ordered):
                low, middle, high = (_number(e, sizes) for e in (one.lower, one.middle, one.upper))
                if not low <= middle <= high:
                    return False
        except Unsupported:  # speaks of a free index: looked at place by place
            continue
    return True


def _places(sig: Signature, sizes: Mapping[str, int], most: int, stream: Stream) -> tuple[dict[Any, int], ...]:
    """Values of the free indices in their ranges, a random choice of at most `most` of them."""
    found: list[dict[Any, int]] = [{}]
    for one in sig.indices:
        grown = []
        for at in found:
            low, high = _number(one.lower, sizes, at), _number(one.upper, sizes, at)
            grown += [{**at, one.index: v} for v in range(low, high + 1)]
        found = grown
    kept = [at for at in found if _place_fits(sig, sizes, at)]
    if len(kept) > most:
        order = np.argsort(stream.uniforms((len(kept),)))
        kept = [kept[i] for i in sorted(order[:most])]
    return tuple(kept)


def _place_fits(sig: Signature, sizes: Mapping[str, int], at: Mapping[Any, int]) -> bool:
    for one in sig.assumptions:
        if isinstance(one, Distinct) and _number(one.first, sizes, at) == _number(one.second, sizes, at):
            return False
        if isinstance(one, Ordered):
            low, middle, high = (_number(e, sizes, at) for e in (one.lower, one.middle, one.upper))
            if not low <= middle <= high:
                return False
    return True


def _values(sig: Signature, sizes: Mapping[str, int], stream: Stream) -> tuple[dict[str, Any], dict[str, float]]:
    masks = {str(getattr(a.array, "label", a.array)) for a in sig.assumptions if isinstance(a, ZeroOne)}
    positive = [a.expr for a in sig.assumptions if isinstance(a, Positive)]
    above = {str(e.base.label) for e in positive if isinstance(e, sympy.Indexed)} | {str(e) for e in positive}
    arrays = {}
    for name, shape in sig.arrays.items():
        lengths = tuple(_number(length, sizes) for length in shape)
        drawn = stream.normals(lengths)
        if name in masks:
            drawn = (drawn > -0.5).astype(np.float64)
        arrays[name] = np.exp(drawn / 2) if name in above else drawn
    scalars = {}
    for s in sig.scalars:
        value = float(stream.normals((1,))[0])
        scalars[s.name] = float(np.exp(value / 2)) if s.is_positive or s.name in above else value
    return arrays, scalars


def all_indices(shape: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """Every index tuple of a shape."""
    return itertools.product(*(range(length) for length in shape))
