"""Third route: every outcome of small arrays with finite support, added up in exact rational numbers.

Guarantees: the statement itself is evaluated, entry by entry, by a walker of its own: no moments, no cumulants, no
combinatorics, nothing shared with the other routes. Exact, at the sizes and laws that were enumerated.
Does not: say anything about other sizes; and a law is replaced by one of finite support with the same moments up to
the order in which the statement uses an entry (weights may be negative, see `laws.Support`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import sympy

from derive.errors import MomentError, StatementError
from derive.moments.laws import Law, Support, Uncorrelated, gaussian
from derive.moments.model import GaussianField, GaussianPair, Model
from derive.moments.nodes import Expect, PowerSum, in_expectations

Value = Any
Place = tuple[int, ...]
_Function = Callable[["World"], Value]


@dataclass
class World:
    """Numbers for everything in a statement: sizes and scalars, row labels, binders, and array entries by place."""

    symbols: Mapping[Any, Any]
    arrays: dict[Any, Mapping[Place, Any]]
    binders: dict[Any, int] = field(default_factory=dict)


class _Recording(dict[Place, Any]):
    """Notes which entries of an array a statement looks at."""

    def __missing__(self, place: Place) -> Fraction:
        self[place] = Fraction(1)
        return self[place]


def compiled(expr: Any) -> _Function:
    """A function of a World for an expression of sums, products, powers, array entries and power sums."""
    if expr.is_Rational:
        number = Fraction(int(expr.p), int(expr.q))
        return lambda world: number
    if isinstance(expr, sympy.Add):
        terms = [compiled(a) for a in expr.args]
        return lambda world: sum((t(world) for t in terms), Fraction(0))
    if isinstance(expr, sympy.Mul):
        return _product([compiled(a) for a in expr.args])
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer:
        base, exponent = compiled(expr.base), int(expr.exp)
        return lambda world: base(world) ** exponent
    if isinstance(expr, sympy.Sum):
        return _sum(expr)
    if isinstance(expr, PowerSum):
        return compiled(expr.opened())
    if isinstance(expr, sympy.Indexed):
        return _entry(expr.base, [compiled(i) for i in expr.indices])
    if isinstance(expr, sympy.Symbol):
        return lambda world: world.binders[expr] if expr in world.binders else world.symbols[expr]
    raise StatementError(f"{type(expr).__name__} can't be enumerated")


def _entry(base: Any, indices: list[_Function]) -> _Function:
    def value(world: World) -> Value:
        if base not in world.arrays:
            raise StatementError(f"array {base} of shape {base.shape} is neither random nor fixed by an assumption")
        return world.arrays[base][tuple(int(i(world)) for i in indices)]

    return value


def _product(factors: list[_Function]) -> _Function:
    def value(world: World) -> Value:
        result = Fraction(1)
        for factor in factors:
            result *= factor(world)
        return result

    return value


def _sum(expr: Any) -> _Function:
    limits = [(binder, compiled(last)) for binder, _, last in reversed(expr.limits)]
    if any(limit[1] != 0 for limit in expr.limits):
        raise StatementError("a sum to be enumerated starts at 0")
    body = compiled(expr.function)

    def walk(world: World, depth: int) -> Value:
        if depth == len(limits):
            return body(world)
        binder, last = limits[depth]
        hidden = world.binders.get(binder)
        total = Fraction(0)
        for value in range(int(last(world)) + 1):
            world.binders[binder] = value
            total += walk(world, depth + 1)
        if hidden is None:
            world.binders.pop(binder, None)
        else:
            world.binders[binder] = hidden
        return total

    return lambda world: walk(world, 0)


def degree(expr: Any, array: Any, place: Place, values: Mapping[Any, Any]) -> int:
    """An upper bound for how often the entry of the array at this place can occur in a term of the expression.

    values: numbers for the row labels; an index that is summed over may take any value.
    """
    if isinstance(expr, sympy.Indexed):
        return int(
            expr.base == array and all(values.get(i, i) in (p, i) for i, p in zip(expr.indices, place, strict=True))
        )
    if isinstance(expr, sympy.Sum):
        # A binder may have the name of a row label outside the sum.
        binders = {limit[0] for limit in expr.limits}
        return degree(expr.function, array, place, {s: v for s, v in values.items() if s not in binders})
    if isinstance(expr, sympy.Mul):
        return sum(degree(a, array, place, values) for a in expr.args)
    if isinstance(expr, sympy.Pow):
        base = degree(expr.base, array, place, values)
        return base * int(expr.exp) if base else 0
    return max((degree(a, array, place, values) for a in expr.args), default=0)


def matching_support(moments: list[Any]) -> Support:
    """A finite law with the moments m₀ = 1 … m_R: R + 1 equally spaced values, or 2 where mean ± deviation will do."""
    top = len(moments) - 1
    mean, variance = moments[1] if top else Fraction(0), moments[2] - moments[1] ** 2 if top > 1 else Fraction(0)
    deviation = _rational_root(variance)
    if deviation is not None and deviation > 0:
        pair = Support((mean - deviation, mean + deviation), (Fraction(1, 2), Fraction(1, 2)))
        if all(pair.moment(r) == moments[r] for r in range(top + 1)):
            return pair
    if variance == 0 and all(moments[r] == mean**r for r in range(top + 1)):
        return Support((mean,), (Fraction(1),))
    step = deviation or Fraction(1)
    nodes = [mean + step * (Fraction(2 * p - top, 2) if top % 2 else Fraction(p - top // 2)) for p in range(top + 1)]
    return Support(tuple(nodes), tuple(_vandermonde(nodes, moments)))


def _rational_root(value: Fraction) -> Fraction | None:
    root = sympy.sqrt(sympy.Rational(value.numerator, value.denominator))
    return Fraction(int(root.p), int(root.q)) if root.is_Rational else None


def _vandermonde(nodes: list[Fraction], moments: list[Any]) -> list[Fraction]:
    """Weights w with Σ_p w_p node_p^r = m_r, by Lagrange's polynomials: w_p = E ℓ_p."""
    weights = []
    for p, node in enumerate(nodes):
        coefficients = [Fraction(1)]
        for other in nodes[:p] + nodes[p + 1 :]:
            shifted = [Fraction(0), *coefficients]
            lowered = [-other * c for c in coefficients] + [Fraction(0)]
            coefficients = [(a + b) / (node - other) for a, b in zip(shifted, lowered, strict=True)]
        weights.append(sum((c * m for c, m in zip(coefficients, moments, strict=True)), Fraction(0)))
    return weights


def to_fraction(value: Any) -> Fraction:
    number = sympy.sympify(value, strict=True)
    if not number.is_Rational:
        raise MomentError(f"enumeration needs rational moments, got {number}")
    return Fraction(int(number.p), int(number.q))


def support_of(law: Any, top: int, values: Mapping[Any, Any]) -> tuple[tuple[tuple[Fraction, ...], Fraction], ...]:
    """Outcomes ((one value a member), weight) of a law at numbers for its symbols, right up to moments of order top."""
    if isinstance(law, GaussianField):
        raise MomentError("a Gaussian field has no law at one place to enumerate")
    if isinstance(law, Uncorrelated):
        law = gaussian(0, law.variance)
    if isinstance(law, Law):
        moments = [Fraction(1)] + [to_fraction(law.moment(r).xreplace(dict(values))) for r in range(1, top + 1)]
        one = matching_support(moments)
        return tuple(((v,), w) for v, w in zip(one.values, one.weights, strict=True))
    return _pair_support(law, top, values)


def _pair_support(
    law: GaussianPair, top: int, values: Mapping[Any, Any]
) -> tuple[tuple[tuple[Fraction, ...], Fraction], ...]:
    """y₁ = m₁ + s₁ z, y₂ = m₂ + s₂(ρ z + √(1−ρ²) z'), z and z' matching the standard normal."""
    put = dict(values)
    m = [to_fraction(sympy.sympify(x, strict=True).xreplace(put)) for x in law.means]
    s = [to_fraction(sympy.sympify(x, strict=True).xreplace(put)) for x in law.deviations]
    rho = to_fraction(sympy.sympify(law.correlation, strict=True).xreplace(put))
    other = _rational_root(1 - rho**2)
    if other is None:
        raise MomentError(f"enumeration needs a rational √(1 − ρ²), got ρ = {rho}")
    standard = [Fraction(0) if r % 2 else Fraction(int(sympy.factorial2(r - 1))) for r in range(top + 1)]
    normal = matching_support(standard)
    outcomes = []
    for (z, v), (y, w) in product(zip(normal.values, normal.weights, strict=True), repeat=2):
        outcomes.append(((m[0] + s[0] * z, m[1] + s[1] * (rho * z + other * y)), v * w))
    return tuple(outcomes)


def enumerated(statement: Any, model: Model, values: Mapping[Any, Any], *, most: int = 20_000) -> Any:
    """The statement's exact value at numbers for its sizes, scalars and row labels. Raises MomentError above `most`.

    Fixed arrays get small distinct integers. The result is a SymPy number (roots appear for a skewness).
    """
    opened = in_expectations(sympy.sympify(statement, strict=True))
    means = sorted(opened.atoms(Expect), key=sympy.default_sort_key)
    split = [scalars_out(e.args[0]) for e in means]
    bodies = [compiled(body) for _, body in split]
    symbols = {s: to_fraction(v) for s, v in values.items()}
    touched = _touched(bodies, model, symbols)
    fixed: dict[Any, Mapping[Place, Any]] = {array: FixedEntries(array in model.symmetric) for array in model.fixed}
    choices = [
        (family.members, place, support_of(family.law, _top(means, family.members, place, values), values))
        for family in model.families
        for place in sorted(set().union(*(touched[a] for a in family.members)))
    ]
    outcomes = 1
    for _, _, support in choices:
        outcomes *= len(support)
    if outcomes > most:
        raise MomentError(f"{outcomes} outcomes to enumerate, more than {most}: take smaller sizes")
    totals = _add_up(bodies, choices, symbols, fixed)
    put = {
        e: scalar * sympy.Rational(t.numerator, t.denominator)
        for e, (scalar, _), t in zip(means, split, totals, strict=True)
    }
    return opened.xreplace(put).xreplace({s: sympy.sympify(v, strict=True) for s, v in values.items()})


def scalars_out(body: Any) -> tuple[Any, Any]:
    """(scalar, rest) with body = scalar · rest: E is linear, and a root of a size can't be walked in rationals."""
    factors = sympy.Mul.make_args(body)
    scalars = [f for f in factors if not f.has(sympy.Indexed)]
    return sympy.Mul(*scalars), sympy.Mul(*(f for f in factors if f.has(sympy.Indexed)))


def _top(means: list[Any], members: tuple[Any, ...], place: Place, values: Mapping[Any, Any]) -> int:
    return max(sum(degree(e.args[0], a, place, values) for a in members) for e in means)


def _add_up(
    bodies: list[_Function], choices: list[Any], symbols: Mapping[Any, Any], fixed: Mapping[Any, Any]
) -> list[Fraction]:
    totals = [Fraction(0)] * len(bodies)
    arrays: dict[Any, Any] = dict(fixed)
    for members, _, _ in choices:
        arrays.update({a: {} for a in members})
    for outcome in product(*(support for _, _, support in choices)):
        weight = Fraction(1)
        for (members, place, _), (entries, share) in zip(choices, outcome, strict=True):
            weight *= share
            for array, entry in zip(members, entries, strict=True):
                arrays[array][place] = entry
        world = World(symbols, arrays)
        totals = [t + weight * body(world) for t, body in zip(totals, bodies, strict=True)]
    return totals


def fixed_entry(place: Place) -> Fraction:
    """A small number for an entry of a fixed array; no two rows are alike or proportional."""
    row, column = (place[0], place[1]) if len(place) > 1 else (place[0], 0)
    return Fraction((row + 1) * (2 - column) + (row * row + 3 * column) % 5 - 2, 1 + (row + column) % 2)


class FixedEntries(dict[Place, Any]):
    """A fixed array filled in as it is looked at; symmetric: equal to its transpose."""

    def __init__(self, symmetric: bool) -> None:
        super().__init__()
        self.symmetric = symmetric

    def __missing__(self, place: Place) -> Fraction:
        self[place] = fixed_entry(tuple(sorted(place)) if self.symmetric else place)
        return self[place]


def _touched(bodies: list[_Function], model: Model, symbols: Mapping[Any, Any]) -> dict[Any, set[Place]]:
    names = [a for family in model.families for a in family.members] + list(model.fixed)
    arrays: dict[Any, Any] = {a: _Recording() for a in names}
    for body in bodies:
        body(World(symbols, arrays))
    return {a: set(arrays[a]) for a in names}


def at(expr: Any, model: Model, values: Mapping[Any, Any]) -> Any:
    """An expression without nodes (a right side) at the same numbers and the same fixed arrays, as a SymPy number.

    Roots are allowed: what `compiled` can't walk is left to SymPy after its sums over fixed arrays are put in.
    """
    symbols = {s: to_fraction(v) for s, v in values.items()}
    arrays: dict[Any, Any] = {a: FixedEntries(a in model.symmetric) for a in model.fixed}
    return _with_numbers(expr, World(symbols, arrays)).xreplace(
        {s: sympy.sympify(v, strict=True) for s, v in values.items()}
    )


def _with_numbers(expr: Any, world: World) -> Any:
    if isinstance(expr, (sympy.Sum, sympy.Indexed, PowerSum)):
        value = Fraction(compiled(expr)(world))
        return sympy.Rational(value.numerator, value.denominator)
    return expr.func(*(_with_numbers(a, world) for a in expr.args)) if expr.args else expr
