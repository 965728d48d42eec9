"""Inputs at which a statement is tried: sizes, arrays, scalars and free indices that meet its assumptions.

Guarantees: sizes are drawn apart, so that a transposition shows; every array entry and scalar is a double, exactly;
what is drawn meets every assumption given as data, or the draw is refused.
Does not: read assumptions in words; they are returned, so that a report can say what was not enforced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from compute.streams import Stream
from derive.assumptions import (
    AtLeast,
    Defined,
    Distinct,
    FixedArray,
    InRange,
    Ordered,
    Positive,
    RandomEntries,
    ZeroOne,
)
from derive.language import Diff
from verify.crosschecking.arithmetic import Digits, Unsupported
from verify.crosschecking.evaluation import Evaluation
from verify.crosschecking.expectations import law_symbols

KNOWN = (AtLeast, Defined, Distinct, FixedArray, InRange, Ordered, Positive, RandomEntries, ZeroOne)


@dataclass(frozen=True)
class Signature:
    """What a statement is about: arrays with their shapes, sizes, free indices, scalars, abbreviations.

    indices: free indices of the statement; every: indices that only its assumptions speak of, which hold for each.
    """

    arrays: Mapping[str, tuple[Any, ...]]
    sizes: tuple[Any, ...]
    indices: tuple[InRange, ...]
    every: tuple[InRange, ...]
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
    ranges = {a.index: a for a in told if isinstance(a, InRange)}
    binders = {i for d in definitions for i in d.indices}
    stated = [sympy.sympify(side, strict=True) for side in sides]
    # Free indices of a definition's body, beyond its own, belong to the statement that uses it.
    spoken = set().union(*(_free(e) for e in stated), *(_free(d.body) - set(d.indices) for d in definitions))
    parameters = set().union(*(law_symbols(one) for one in told if isinstance(one, RandomEntries)))
    conditions = [sympy.sympify(part, strict=True) for one in told for part in _parts(one)]
    bases: dict[str, tuple[Any, ...]] = {}
    free = spoken | parameters
    for expr in [*stated, *(d.body for d in definitions), *conditions]:
        for node in sympy.preorder_traversal(expr):
            if isinstance(node, sympy.IndexedBase):
                bases[str(node.label)] = tuple(node.shape or ())
    for expr in [*conditions, *(sympy.sympify(length) for shape in bases.values() for length in shape)]:
        free |= _free(expr)
    defined = {_name(d.array) for d in definitions}
    symbols = {
        s
        for s in free - binders | (free & spoken)
        if isinstance(s, sympy.Symbol) and s.name not in bases and s not in ranges
    }
    sizes = tuple(sorted((s for s in symbols if s.is_integer), key=lambda s: s.name))
    scalars = tuple(sorted((s for s in symbols if not s.is_integer), key=lambda s: s.name))
    arrays = {name: shape for name, shape in sorted(bases.items()) if name not in defined}
    indices = tuple(one for ix, one in ranges.items() if ix in spoken)
    every = tuple(one for ix, one in ranges.items() if ix not in spoken)
    return Signature(arrays, sizes, indices, every, scalars, definitions, told)


def _name(array: Any) -> str:
    return str(getattr(array, "label", array))


def _parts(one: Any) -> tuple[Any, ...]:
    """The expressions that an assumption speaks of, abbreviations and arrays apart."""
    names = ("size", "lower", "middle", "upper", "first", "second", "expr")
    return () if isinstance(one, (Defined, ZeroOne, str)) else tuple(getattr(one, n) for n in names if hasattr(one, n))


def _free(expr: Any) -> set[Any]:
    """Free symbols of an expression; those of a Diff's entry are free too, whatever is bound inside it."""
    if isinstance(expr, Diff):
        return _free(expr.expr) | set(sympy.sympify(expr.entry).free_symbols)
    if isinstance(expr, sympy.Limit):
        body, variable, target = expr.args[:3]
        return (_free(body) - {variable}) | _free(target)
    if isinstance(expr, (sympy.Sum, sympy.Product)):
        found = _free(expr.args[0])
        for binder, low, high in expr.limits:
            found = (found - {binder}) | _free(low) | _free(high)
        return found
    if isinstance(expr, sympy.Symbol):
        return {expr}
    return set().union(*(_free(a) for a in getattr(expr, "args", ())))


def draw(sig: Signature, stream: Stream, *, largest: int = 4, most_places: int = 24) -> Inputs:
    """Inputs that meet the assumptions. Raises Unsupported when none is found or a kind of assumption is not known."""
    strange = [a for a in sig.assumptions if not isinstance(a, (*KNOWN, str))]
    if strange:
        raise Unsupported(f"an assumption of kind {type(strange[0]).__name__}")
    for _ in range(400):
        sizes = {s.name: 1 + int(stream.integers(largest, (1,))[0]) for s in sig.sizes}
        if not _sizes_fit(sig, sizes):
            continue
        arrays, scalars = _values(sig, sizes, stream)
        found = Inputs(sizes, arrays, scalars, ())
        places = [at for at in _combinations(sig.indices, sizes, {}) if _holds(sig, found, at)]
        if places:
            return Inputs(sizes, arrays, scalars, _some(places, most_places, stream))
    raise Unsupported("no drawn sizes and inputs meet the assumptions")


def _some(places: list[dict[Any, int]], most: int, stream: Stream) -> tuple[dict[Any, int], ...]:
    if len(places) <= most:
        return tuple(places)
    order = np.argsort(stream.uniforms((len(places),)))
    return tuple(places[i] for i in sorted(order[:most]))


def _number(expr: Any, sizes: Mapping[str, int], at: Mapping[Any, int] | None = None) -> int:
    import mpmath

    return int(Evaluation(Digits(mpmath.mp), {}, sizes).value(expr, at))


def _sizes_fit(sig: Signature, sizes: Mapping[str, int]) -> bool:
    for one in sig.assumptions:
        if not isinstance(one, (AtLeast, Ordered)):
            continue
        try:
            if isinstance(one, AtLeast):
                if _number(one.size, sizes) < one.least:
                    return False
            else:
                low, middle, high = (_number(e, sizes) for e in (one.lower, one.middle, one.upper))
                if not low <= middle <= high:
                    return False
        except Unsupported:  # speaks of an index or of an entry: looked at later
            continue
    return True


def _combinations(
    ranges: Iterable[InRange], sizes: Mapping[str, int], at: Mapping[Any, int]
) -> Iterator[dict[Any, int]]:
    """Every value of the indices in their ranges, which may depend on indices before them."""
    told = tuple(ranges)
    if not told:
        yield dict(at)
        return
    first, rest = told[0], told[1:]
    for value in range(_number(first.lower, sizes, at), _number(first.upper, sizes, at) + 1):
        yield from _combinations(rest, sizes, {**at, first.index: value})


def _holds(sig: Signature, drawn: Inputs, at: Mapping[Any, int]) -> bool:
    """Whether the assumptions hold at these free indices, for every value of the others."""
    import mpmath

    told = [a for a in sig.assumptions if isinstance(a, (Distinct, Ordered, Positive))]
    if not told:
        return True
    run = Evaluation(Digits(mpmath.mp), drawn.entries(), drawn.numbers(), sig.definitions)
    for here in _combinations(sig.every, drawn.sizes, at):
        apart = [a for a in told if isinstance(a, Distinct)]
        differ = [run.value(a.first, here) != run.value(a.second, here) for a in apart]
        about = [any(one.index in (_free(a.first) | _free(a.second)) for one in sig.every) for a in apart]
        if any(not d and not e for d, e in zip(differ, about, strict=True)):
            return False
        if not all(differ):
            continue  # an index that must differ and doesn't: nothing is assumed there
        if not all(_true(a, run, here) for a in told if not isinstance(a, Distinct)):
            return False
    return True


def _true(one: Ordered | Positive, run: Evaluation, at: Mapping[Any, int]) -> bool:
    if isinstance(one, Positive):
        return bool(run.value(one.expr, at) > 0)
    low, middle, high = (run.value(e, at) for e in (one.lower, one.middle, one.upper))
    return bool(low <= middle <= high)


def _values(sig: Signature, sizes: Mapping[str, int], stream: Stream) -> tuple[dict[str, Any], dict[str, float]]:
    masks = {_name(a.array) for a in sig.assumptions if isinstance(a, ZeroOne)}
    above = {
        _name(a.expr.base) for a in sig.assumptions if isinstance(a, Positive) and isinstance(a.expr, sympy.Indexed)
    }
    arrays = {}
    for name, shape in sig.arrays.items():
        drawn = stream.normals(tuple(_number(length, sizes) for length in shape))
        if name in masks:
            drawn = (drawn > -0.5).astype(np.float64)
        arrays[name] = np.exp(drawn / 2) if name in above else drawn
    scalars = {}
    for s in sig.scalars:
        # Wider than the entries of arrays, so that a scalar that must lie above them is found soon.
        value = 2 * float(stream.normals((1,))[0])
        scalars[s.name] = float(np.exp(value / 4)) if s.is_positive else value
    return arrays, scalars
