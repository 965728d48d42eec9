"""Truncated power series in infinitesimals whose squares are zero: exact derivatives of any order, over any arithmetic.

Guarantees: a jet at k nested infinitesimals carries all 2^k mixed partial derivatives, and +, × and the functions
below are those of the ring R[ε₁, …, ε_k]/(ε₁², …, ε_k²). Nothing is approximated: the base arithmetic decides whether
numbers are residues or intervals.
Does not: know what the numbers are. A base number needs +, × and unary −; an `Arithmetic` supplies the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Protocol


class Arithmetic(Protocol):
    """What a kind of number must offer besides +, × and unary −."""

    def lift(self, value: Fraction) -> Any: ...
    def inverse(self, x: Any) -> Any: ...
    def root(self, x: Any, degree: int) -> Any: ...
    def function(self, name: str, x: Any) -> Any: ...


class Jet:
    """x₀ + Σ over non-empty sets S of infinitesimals of x_S ε_S; `parts` maps the bitmask of S to x_S, 0 to x₀."""

    __slots__ = ("parts",)

    def __init__(self, parts: Mapping[int, Any]) -> None:
        self.parts = dict(parts)

    def __add__(self, other: Any) -> Jet:
        parts = dict(self.parts)
        for mask, x in parts_of(other).items():
            parts[mask] = parts[mask] + x if mask in parts else x
        return Jet(parts)

    __radd__ = __add__

    def __neg__(self) -> Jet:
        return Jet({mask: -x for mask, x in self.parts.items()})

    def __mul__(self, other: Any) -> Jet:
        parts: dict[int, Any] = {}
        for a, x in self.parts.items():
            for b, y in parts_of(other).items():
                if a & b == 0:
                    xy = x * y
                    parts[a | b] = parts[a | b] + xy if a | b in parts else xy
        return Jet(parts)

    __rmul__ = __mul__


def parts_of(x: Any) -> Mapping[int, Any]:
    """The parts of a jet; a plain number is its own constant part."""
    return x.parts if isinstance(x, Jet) else {0: x}


def coefficient(x: Any, bit: int, zero: Any) -> Any:
    """The derivative along infinitesimal number `bit`, the highest one in use: a jet in the lower ones."""
    parts = {mask ^ (1 << bit): part for mask, part in parts_of(x).items() if mask >> bit & 1}
    if not parts:
        return zero
    return parts[0] if set(parts) == {0} else Jet({0: zero, **parts})


def apply(x: Any, taylor: Callable[[Any, int], list[Any]], zero: Any) -> Any:
    """f(x) = Σ_k f⁽ᵏ⁾(x₀)/k! · ν^k with ν = x − x₀ nilpotent; `taylor(x₀, order)` lists f⁽ᵏ⁾(x₀)/k! for k ≤ order."""
    if not isinstance(x, Jet):
        return taylor(x, 0)[0]
    nilpotent = Jet({mask: part for mask, part in x.parts.items() if mask})
    if not nilpotent.parts:
        return taylor(x.parts[0], 0)[0]
    union = 0
    for mask in nilpotent.parts:
        union |= mask
    coefficients = taylor(x.parts[0], union.bit_count())
    power: Any = nilpotent
    result: Any = Jet({0: coefficients[0]})
    for c in coefficients[1:]:
        result = result + power * c
        power = power * nilpotent
    return result


def taylor_of(ops: Arithmetic, name: str) -> Callable[[Any, int], list[Any]]:
    """Taylor coefficients of a named function, from its stated derivative.

    exp' = exp; log' = 1/x; tanh' = 1 − tanh²; sin' = cos and cos' = −sin. Raises KeyError for any other name.
    """
    return lambda x, order: _TAYLOR[name](ops, x, order)


def _exp(ops: Arithmetic, x: Any, order: int) -> list[Any]:
    value = ops.function("exp", x)
    return [value, *(value * ops.lift(Fraction(1, math.factorial(k))) for k in range(1, order + 1))]


def _log(ops: Arithmetic, x: Any, order: int) -> list[Any]:
    out = [ops.function("log", x)]
    power, inverse = ops.lift(Fraction(1)), ops.inverse(x) if order else None
    for k in range(1, order + 1):
        power = power * inverse
        out.append(power * ops.lift(Fraction((-1) ** (k + 1), k)))
    return out


def _tanh(ops: Arithmetic, x: Any, order: int) -> list[Any]:
    value = ops.function("tanh", x)
    out, polynomial = [value], {1: Fraction(1)}  # tanh⁽ᵏ⁾ as a polynomial in tanh, by t' = 1 − t²
    for k in range(1, order + 1):
        following: dict[int, Fraction] = {}
        for degree, c in polynomial.items():
            following[degree - 1] = following.get(degree - 1, Fraction(0)) + degree * c
            following[degree + 1] = following.get(degree + 1, Fraction(0)) - degree * c
        polynomial = {degree: c for degree, c in following.items() if c}
        powers = [ops.lift(Fraction(1))]
        for _ in range(max(polynomial)):
            powers.append(powers[-1] * value)
        term = ops.lift(Fraction(0))
        for degree, c in polynomial.items():
            term = term + powers[degree] * ops.lift(c / math.factorial(k))
        out.append(term)
    return out


def _circular(first: str, second: str, sign: int) -> Callable[[Arithmetic, Any, int], list[Any]]:
    """sin and cos: the derivatives run f, sign·g, −f, −sign·g and repeat."""

    def taylor(ops: Arithmetic, x: Any, order: int) -> list[Any]:
        f = ops.function(first, x)
        g = ops.function(second, x) if order else f
        cycle = [(f, 1), (g, sign), (f, -1), (g, -sign)]
        return [cycle[k % 4][0] * ops.lift(Fraction(cycle[k % 4][1], math.factorial(k))) for k in range(order + 1)]

    return taylor


_TAYLOR: dict[str, Callable[[Arithmetic, Any, int], list[Any]]] = {
    "exp": _exp,
    "log": _log,
    "tanh": _tanh,
    "sin": _circular("sin", "cos", 1),
    "cos": _circular("cos", "sin", -1),
}


def inverse(ops: Arithmetic, x: Any) -> Any:
    """1/x."""

    def taylor(x0: Any, order: int) -> list[Any]:
        first = ops.inverse(x0)
        out = [first]
        for _ in range(order):
            out.append(-(out[-1] * first))
        return out

    return apply(x, taylor, ops.lift(Fraction(0)))


def root(ops: Arithmetic, x: Any, degree: int) -> Any:
    """x^(1/degree), by the binomial series."""

    def taylor(x0: Any, order: int) -> list[Any]:
        out = [ops.root(x0, degree)]
        over = ops.inverse(x0) if order else None
        for k in range(1, order + 1):
            step = (Fraction(1, degree) - (k - 1)) / k
            out.append(out[-1] * over * ops.lift(step))
        return out

    return apply(x, taylor, ops.lift(Fraction(0)))
