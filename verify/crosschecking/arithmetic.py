"""Two ways to carry out one evaluation: exactly (in many digits), and with a bound on what float64 may do instead.

Guarantees: `Digits` computes with the precision of its context. `Rounded` carries (value, bound) such that any
float64 evaluation of the same expression, sums and products in any order, lies within bound of value, provided
inputs are exact doubles, nothing overflows, and the elementary functions are within 2 ulp (NumPy's tests state at
most 1 to 4 for those here; `ELEMENTARY` holds what is assumed).
Does not: know any formula of attention.

u = 2^-53 is the unit roundoff; 2^-1074 covers a product that underflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Relative error of one elementary function, in units of u: 2 ulp at most.
ELEMENTARY = 4
# Functions that rise everywhere they are defined: the ends of an interval bound them.
RISING = ("exp", "log", "sqrt", "tanh", "erf")
# Functions whose slope is at most 1 in size.
GENTLE = ("sin", "cos")


class Unsupported(Exception):
    """The statement holds something that has no value at numbers here (an expectation, a limit)."""


class Digits:
    """Numbers of a multiprecision context."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def exact(self, value: Any) -> Any:
        return self.context.mpf(value)

    def ratio(self, p: int, q: int) -> Any:
        return self.context.mpf(p) / q

    def constant(self, name: str) -> Any:
        return +{"pi": self.context.pi, "e": self.context.e, "euler_gamma": self.context.euler}[name]

    def middle(self, x: Any) -> Any:
        return x

    def add(self, terms: Sequence[Any]) -> Any:
        return self.context.fsum(terms)

    def mul(self, factors: Sequence[Any]) -> Any:
        return self.context.fprod(factors)

    def power(self, base: Any, exponent: Any) -> Any:
        if base == 0 and exponent < 0:
            raise Unsupported("a division by zero")
        if exponent == int(exponent):
            return base ** int(exponent)
        if base < 0:
            raise Unsupported("a power of a negative number")
        return self.context.power(base, exponent)

    def function(self, name: str, x: Any) -> Any:
        return abs(x) if name == "abs" else getattr(self.context, name)(x)

    def largest(self, terms: Sequence[Any]) -> Any:
        return max(terms)

    def smallest(self, terms: Sequence[Any]) -> Any:
        return min(terms)


class Rounded:
    """Pairs (value, bound on the error of a float64 evaluation)."""

    def __init__(self, context: Any) -> None:
        self.context = context
        # In this context: mpmath's global one would round 1 + u to 1.
        self.unit, self.tiny = context.mpf(2) ** -53, context.mpf(2) ** -1074
        self._plain = Digits(context)

    def exact(self, value: Any) -> Any:
        return self.context.mpf(value), self.context.mpf(0)

    def ratio(self, p: int, q: int) -> Any:
        value = self._plain.ratio(p, q)
        return value, self.context.mpf(0) if self.context.mpf(float(value)) == value else self.unit * abs(value)

    def constant(self, name: str) -> Any:
        value = self._plain.constant(name)
        return value, self.unit * abs(value)

    def middle(self, x: Any) -> Any:
        return x[0]

    def add(self, terms: Sequence[Any]) -> Any:
        """Any order: each of the k − 1 additions multiplies what it holds by at most 1 + u."""
        value = self.context.fsum(v for v, _ in terms)
        size = self.context.fsum(abs(v) + e for v, e in terms)
        growth = (1 + self.unit) ** max(0, len(terms) - 1) - 1
        return value, self.context.fsum(e for _, e in terms) + growth * size

    def mul(self, factors: Sequence[Any]) -> Any:
        value = self.context.fprod(v for v, _ in factors)
        size = self.context.fprod(abs(v) + e for v, e in factors)
        return value, size * (1 + self.unit) ** max(0, len(factors) - 1) - abs(value) + len(factors) * self.tiny

    def power(self, base: Any, exponent: Any) -> Any:
        """By the ends of the base's and the exponent's intervals, plus the roundings of a product or a pow."""
        (b, eb), (x, ex) = base, exponent
        whole = ex == 0 and x == int(x)
        if not (whole and x >= 0) and abs(b) <= eb:
            raise Unsupported("a power of a number whose sign float64 does not know")
        value = self._plain.power(b, x)
        # Between the ends a power of a base of one sign is monotone in base and exponent; x^m through 0 is at most
        # the largest end in size.
        corners = [self._plain.power(b + s * eb, x + t * ex) for s in (-1, 1) for t in ((-1, 1) if ex else (0,))]
        spread = max(abs(c - value) for c in corners)
        if whole and x >= 0 and abs(b) <= eb:
            spread = max(spread, abs(value))
        roundings = 2 * abs(int(x)) + ELEMENTARY if whole else ELEMENTARY
        largest = max(abs(c) for c in (*corners, value))
        return value, spread + ((1 + self.unit) ** roundings - 1) * largest + self.tiny

    def function(self, name: str, x: Any) -> Any:
        value, error = x
        if name == "abs":
            return abs(value), error
        if name in GENTLE:
            found = self._plain.function(name, value)
            return found, error + ELEMENTARY * self.unit * (abs(found) + error) + self.tiny
        if name not in RISING:
            if error:
                raise Unsupported(f"a rounding bound of {name}")
            found = self._plain.function(name, value)
            return found, 4 * ELEMENTARY * self.unit * abs(found)
        if (name == "log" and value - error <= 0) or (name == "sqrt" and value - error < 0):
            raise Unsupported(f"{name} of a number whose sign float64 does not know")
        found, low, high = (self._plain.function(name, y) for y in (value, value - error, value + error))
        return found, max(found - low, high - found) + ELEMENTARY * self.unit * max(abs(low), abs(high)) + self.tiny

    def largest(self, terms: Sequence[Any]) -> Any:
        return max(v for v, _ in terms), max(e for _, e in terms)

    def smallest(self, terms: Sequence[Any]) -> Any:
        return min(v for v, _ in terms), max(e for _, e in terms)
