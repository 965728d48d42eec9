"""Enclosures of means over the gap of two keys: ∫ R(e^t) e^(-t²/(4v))/√(4πv) dt for a rational function R.

Guarantees: the interval holds the integral; every step is interval arithmetic.
Does not: give more than the two digits or so that separating two integrals takes.

The line is cut into cells; on each, R lies in its interval value and the density in its own, both at interval
arguments. Beyond ±T, R is taken at e^(-|t|) in [0, e^(-T)], and the density has the mass 2Q(T/√(2v)) ≤ e^(-T²/(4v)).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sympy

from derive.errors import StatementError
from derive.interval_numbers import PI, Interval

_CELLS = 1024  # to each side
_ENDS = 12  # in units of √v, where e^(-T²/(4v)) is e^(-36)


def gap_mean(body: Any, e: Any, variance: int) -> Interval:
    """The mean of body, rational in the positive symbol e = e^t, for t ~ N(0, 2 variance); variance a square number.

    Raises StatementError where the body is not rational or not bounded at both ends, Undefined at a pole.
    """
    root = sympy.sqrt(variance)
    if not root.is_Integer:
        raise StatementError(f"the variance is {variance}: expected a square number")
    end = _ENDS * int(root)
    cells = Interval.of(Fraction(0))
    rising, falling = _rational(body, e), _rational(body.subs(e, 1 / e), e)
    for k in range(_CELLS):
        low, high = Fraction(end * k, _CELLS), Fraction(end * (k + 1), _CELLS)
        weight = (Interval.between(low**2, high**2) * Interval.of(Fraction(-1, 4 * variance))).exp()
        at = (-Interval.between(low, high)).exp()  # e^-t for t ≥ 0, and e^t for t ≤ 0
        cells = cells + weight * (_value(rising, at) + _value(falling, at))
    width = Interval.of(Fraction(end, _CELLS))
    scale = (Interval.of(Fraction(4 * variance)) * PI).sqrt().inverse()
    beyond = Interval.between(Fraction(0), Fraction(1)) * Interval.of(Fraction(-(end**2), 4 * variance)).exp()
    tip = Interval.between(Fraction(0), Fraction(1)) * Interval.of(Fraction(-end)).exp()
    half = Interval.of(Fraction(1, 2))
    tails = beyond * half * (_value(rising, tip) + _value(falling, tip))
    return cells * width * scale + tails


def _rational(body: Any, e: Any) -> tuple[list[Fraction], list[Fraction]]:
    """Coefficients of numerator and denominator, the highest power first."""
    parts = sympy.fraction(sympy.cancel(sympy.together(body)))
    if any(part.free_symbols - {e} or not part.is_polynomial(e) for part in parts):
        raise StatementError(f"{body} is no rational function of {e}")
    lists = [sympy.Poly(part, e).all_coeffs() for part in parts]
    if not all(c.is_Rational for coefficients in lists for c in coefficients):
        raise StatementError(f"{body} has coefficients that are not rational numbers")
    top, bottom = ([Fraction(int(c.p), int(c.q)) for c in coefficients] for coefficients in lists)
    return top, bottom


def _value(parts: tuple[list[Fraction], list[Fraction]], at: Interval) -> Interval:
    top, bottom = (_horner(coefficients, at) for coefficients in parts)
    out: Interval = top * bottom.inverse()
    return out


def _horner(coefficients: list[Fraction], at: Interval) -> Interval:
    out = Interval.of(Fraction(0))
    for c in coefficients:
        out = out * at + Interval.of(c)
    return out
