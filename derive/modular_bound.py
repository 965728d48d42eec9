"""How likely a false identity is to pass one draw of the modular checker, with products in exponents too.

At fixed sizes, lhs − rhs = N/D with N = Σ_{k≤t} P_k(x) exp(q_k(x)): P_k polynomials of degree ≤ δ, q_k distinct
polynomials of degree ≤ κ with rational coefficients of common denominator L and coefficient sum ≤ C (all times one √s).
A draw takes exponents b uniform below B, values a uniform below p, independent, and g uniform in the subgroup of
order r. Then for N ≠ 0

    Pr[N = 0] ≤ t²κ/(2B) + (2·L·C·B^κ + δ)/(r − 1):

two distinct q_k agree at b with probability ≤ κ/B (Schwartz–Zippel over the integers); otherwise, with h = g^(√s/L)
uniform, N·h^(LC·B^κ) is a non-zero polynomial in (h, a) of degree ≤ 2LC·B^κ + δ. A draw with D = 0 is repeated, which
divides the bound by 1 − Pr[D = 0]. The bound presumes that p divides no numerator of a coefficient of a P_k.

Guarantees: the parts t, δ, κ, L, C are upper bounds, found by running the same evaluator over `Degree` numbers.
Does not: bound statements with a root of a variable, or a reciprocal of one, in an exponent (`NoBound`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from derive.modular_field import R


class NoBound(Exception):
    """No valid error bound is known for this statement; the message says why."""


@dataclass(frozen=True)
class Polynomial:
    """√surd times a polynomial of this degree, whose coefficients have sum of absolute values ≤ norm and denominators
    dividing lcd. constant: its value over √surd when the degree is 0."""

    degree: int
    norm: Fraction
    lcd: int = 1
    surd: int = 1
    constant: Fraction | None = None


@dataclass(frozen=True)
class Size:
    """Of an exponential polynomial: terms, degree of the coefficients, and exponents ≤ coefficients·B^power."""

    terms: int
    degree: int
    coefficients: int = 0
    power: int = 0

    def __mul__(self, other: Size) -> Size:
        return Size(
            self.terms * other.terms,
            self.degree + other.degree,
            self.coefficients + other.coefficients,
            max(self.power, other.power),
        )

    def __add__(self, other: Size) -> Size:
        return Size(
            self.terms + other.terms,
            max(self.degree, other.degree),
            max(self.coefficients, other.coefficients),
            max(self.power, other.power),
        )

    def to(self, count: int) -> Size:
        return Size(self.terms**count, self.degree * count, self.coefficients * count, self.power)


_UNIT = Size(1, 0)


@dataclass(frozen=True, eq=False)
class Degree:
    """A number of which only its size is known: numerator, denominators by identity with multiplicity, and, where the
    number is a polynomial, its shape; logs: (argument, count) of the logarithms added to that polynomial."""

    top: Size
    below: Mapping[int, tuple[Size, int]] = field(default_factory=dict)
    polynomial: Polynomial | None = None
    logs: tuple[tuple[Degree, int], ...] = ()

    @property
    def is_zero(self) -> bool:
        return self.top.terms == 0

    def __neg__(self) -> Degree:
        shape = self.polynomial
        if shape is not None and shape.constant is not None:
            shape = replace(shape, constant=-shape.constant)
        return replace(self, polynomial=shape, logs=tuple((a, -k) for a, k in self.logs))

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Degree):
            return NotImplemented
        if self.is_zero:
            return other
        if other.is_zero:
            return self
        if self.below == other.below:
            return Degree(
                self.top + other.top, self.below, _sum(self.polynomial, other.polynomial), self.logs + other.logs
            )
        below = dict(self.below)
        for key, (one, count) in other.below.items():
            below[key] = (one, max(count, below.get(key, (one, 0))[1]))
        top = _raised(self, below) + _raised(other, below)
        return Degree(top, below, _sum(self.polynomial, other.polynomial), self.logs + other.logs)

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Degree):
            return NotImplemented
        if self.is_zero or other.is_zero:
            return _ZERO
        below = dict(self.below)
        for key, (one, count) in other.below.items():
            below[key] = (one, count + below.get(key, (one, 0))[1])
        shape = _product(self.polynomial, other.polynomial)
        logs: tuple[tuple[Degree, int], ...] = ()
        if self.logs or other.logs:
            plain, logged = (other, self) if self.logs else (self, other)
            count_ = _whole(plain)
            if count_ is None or plain.logs:
                shape = None
            else:
                logs = tuple((a, k * count_) for a, k in logged.logs)
        return Degree(self.top * other.top, below, shape, logs)


_ZERO = Degree(Size(0, 0), {}, Polynomial(0, Fraction(0), constant=Fraction(0)))


def _raised(x: Degree, below: Mapping[int, tuple[Size, int]]) -> Size:
    top = x.top
    for key, (one, count) in below.items():
        missing = count - x.below.get(key, (one, 0))[1]
        top = top * one.to(missing) if missing else top
    return top


def _sum(a: Polynomial | None, b: Polynomial | None) -> Polynomial | None:
    if a is None or b is None or a.surd != b.surd:
        return None
    constant = None if a.constant is None or b.constant is None else a.constant + b.constant
    return Polynomial(max(a.degree, b.degree), a.norm + b.norm, math.lcm(a.lcd, b.lcd), a.surd, constant)


def _product(a: Polynomial | None, b: Polynomial | None) -> Polynomial | None:
    if a is None or b is None:
        return None
    common = math.gcd(a.surd, b.surd)
    constant = None if a.constant is None or b.constant is None else a.constant * b.constant * common
    surd = a.surd * b.surd // common**2
    return Polynomial(a.degree + b.degree, a.norm * b.norm * common, a.lcd * b.lcd, surd, constant)


def _whole(x: Degree) -> int | None:
    shape = x.polynomial
    if shape is None or shape.constant is None or shape.surd != 1 or shape.constant.denominator != 1:
        return None
    return int(shape.constant)


class Degrees:
    """The arithmetic of sizes; after an evaluation it knows the exponents' denominators, surds and fresh functions."""

    splits_logs = True

    def __init__(self, powers: Mapping[Any, int]) -> None:
        self.powers = powers
        self.lcd = 1
        self.surds: set[int] = set()
        self.fresh: list[Degree] = []
        self._kept: list[Degree] = []  # denominators are known by identity, so they must stay alive
        self._roots: dict[int, int] = {}  # scalars that are drawn as powers

    def lift(self, value: Fraction) -> Degree:
        if value == 0:
            return _ZERO
        return Degree(_UNIT, {}, Polynomial(0, abs(value), value.denominator, 1, value))

    def entry(self, label: str, place: tuple[int, ...]) -> Degree:
        return _variable(1)

    def scalar(self, symbol: Any) -> Degree:
        power = self.powers.get(symbol, 1)
        x = _variable(power)
        self._kept.append(x)
        self._roots[id(x)] = power
        return x

    def constant(self, atom: Any) -> Degree:
        return _variable(1)

    def absolute(self, x: Degree) -> Degree:
        raise NoBound("an absolute value")

    def inverse(self, x: Degree) -> Degree:
        shape = x.polynomial
        if shape is not None and shape.constant is not None and not x.logs:
            if shape.constant == 0:
                raise NoBound("a division by zero")
            value = Fraction(1) / (shape.constant * shape.surd)
            return Degree(_UNIT, {}, Polynomial(0, abs(value), value.denominator, shape.surd, value))
        self._kept.append(x)
        top = _UNIT
        for one, count in x.below.values():
            top = top * one.to(count)
        return Degree(top, {id(x): (x.top, 1)}, None)

    def root(self, x: Degree, degree: int) -> Degree:
        shape = x.polynomial
        if self._roots.get(id(x), 1) % degree == 0 and id(x) in self._roots:
            return _variable(self._roots[id(x)] // degree)
        if degree == 2 and shape is not None and shape.constant is not None and shape.surd == 1 and shape.constant > 0:
            number = shape.constant.numerator * shape.constant.denominator
            free, square = _squarefree(number)
            value = Fraction(square, shape.constant.denominator)
            return Degree(_UNIT, {}, Polynomial(0, value, value.denominator, free, value))
        raise NoBound("a root of something other than a size or a positive scalar")

    def function(self, name: str, x: Degree) -> Degree:
        if name == "exp":
            return self._exp(x)
        self.fresh.append(x)
        if name in ("sin", "cos"):
            # A rational function of one fresh variable with the denominator 1 + u²; angles may share it.
            return Degree(Size(1, 2), {id(x): (Size(1, 2), 1)})
        new = _variable(1)
        return replace(new, polynomial=Polynomial(0, Fraction(0)), logs=((x, 1),)) if name == "log" else new

    def _exp(self, x: Degree) -> Degree:
        shape = x.polynomial
        if shape is None:
            raise NoBound("an exponent that is not a polynomial with one root in front")
        if shape.norm:
            self.surds.add(shape.surd)
        self.lcd = math.lcm(self.lcd, shape.lcd)
        result = Degree(Size(1, 0, math.ceil(shape.norm), shape.degree))
        for argument, count in x.logs:
            factor = argument if count > 0 else self.inverse(argument)
            for _ in range(abs(count)):
                result = result * factor
        return result

    def bound(self, difference: Degree, bits: int) -> float:
        """The error probability of one draw with exponents below 2^bits. Raises NoBound."""
        if len(self.surds) > 1:
            raise NoBound("exponents with different square roots in front")
        below = _UNIT
        for one, count in difference.below.values():
            below = below * one.to(count)
        error = self._one(difference.top, bits)
        error += sum(len(self.fresh) ** 2 * self._one(x.top * x.top, bits) for x in self.fresh)
        undefined = self._one(below, bits)
        return min(1.0, error / (1 - undefined)) if undefined < 0.5 else 1.0

    def best_bits(self, difference: Degree) -> int:
        """The number of exponent bits that makes the bound least."""
        return min(range(8, 200, 16), key=lambda bits: self.bound(difference, bits))

    def _one(self, size: Size, bits: int) -> float:
        collide = _power_of_two(2 * math.log2(size.terms) + math.log2(size.power) - bits - 1) if _both(size) else 0.0
        exponents = math.log2(2 * self.lcd * size.coefficients) + bits * size.power if size.coefficients else -math.inf
        degree = math.log2(size.degree) if size.degree else -math.inf
        return min(1.0, collide + _power_of_two(exponents - _LOG_R) + _power_of_two(degree - _LOG_R))


_LOG_R = math.log2(R - 1)


def _both(size: Size) -> bool:
    """Whether there are two exponents that might collide."""
    return size.terms > 0 and size.power > 0


def _power_of_two(exponent: float) -> float:
    """2^exponent (at most 2), rounded up by more than the logarithms' rounding and never down to 0."""
    return 0.0 if exponent == -math.inf else 2.0 ** max(-1000.0, min(exponent, 1.0)) * (1 + 1e-9)


def _variable(power: int) -> Degree:
    return Degree(Size(1, power), {}, Polynomial(power, Fraction(1)))


def _squarefree(number: int) -> tuple[int, int]:
    """(f, s) with number = f·s² and f squarefree."""
    square, factor = 1, 2
    while factor * factor <= number:
        while number % (factor * factor) == 0:
            number //= factor * factor
            square *= factor
        factor += 1
    return number, square
