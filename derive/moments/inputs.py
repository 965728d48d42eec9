"""What a reader gives: exact numbers, sizes, names, laws, checked where they are given.

Guarantees: anything else is an InputError that says what was expected, what was got, and the likely mend, before any
work is done; text is never read as mathematics. Does not: check that laws fit a statement (`derive.moments.model`).
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import InputError


def shown(value: Any) -> str:
    """A value as an error names it, with its kind where that isn't plain."""
    if isinstance(value, str):
        return f"the text {value!r}"
    if value is None or isinstance(value, (bool, int, float, complex, sympy.Basic)):
        return str(value)
    if callable(value):
        return f"the function {getattr(value, '__name__', value)}"
    return f"a value of type {type(value).__name__}"


_NUMBERS = 'numbers are written 2 or Rational(1, 50), symbols scalar("sigma") of derive.language'


def exact(value: Any, what: str, expected: str = "an exact number or a symbol", mend: str = _NUMBERS) -> Any:
    """An exact real number or a SymPy expression of real symbols. expected, mend: how the error says what is wanted."""
    number = None
    if not isinstance(value, (str, bool)) and value is not None:
        try:
            number = sympy.sympify(value, strict=True)
        except (sympy.SympifyError, TypeError, AttributeError):
            number = None
    if not isinstance(number, sympy.Expr):
        raise InputError(f"{what}: expected {expected}, got {shown(value)}; {mend}")
    if number.has(sympy.oo, -sympy.oo, sympy.zoo, sympy.nan) or number.is_real is False:
        raise InputError(f"{what}: expected {expected}, finite and real, got {value}; {mend}")
    if number.has(sympy.Float):
        near = sympy.Rational(str(value)) if isinstance(value, float) else None
        if mend == _NUMBERS:
            mend = f"write Rational({near.p}, {near.q})" if near is not None else "write Rational(1, 50), not 0.02"
        raise InputError(f"{what}: expected {expected}, got {value}, which is rounded; {mend}")
    return number


def positive(value: Any, what: str) -> Any:
    """An exact number above 0, or a symbol that may be."""
    number = exact(value, what)
    if number.is_nonpositive:
        raise InputError(f"{what}: expected a number above 0, got {number}")
    return number


def size(value: Any, what: str, least: int = 0) -> Any:
    """A number of rows or components: a whole number of at least `least`, or a symbol that may be one."""
    expected = f"a whole number of at least {least}"
    mend = 'a symbolic size is size("d_k") of derive.language'
    number = exact(value, what, expected, mend)
    if number.is_integer is False or (number - least).is_negative:
        raise InputError(f"{what}: expected {expected}, got {number}; {mend}")
    return number


def index(value: Any, extent: Any) -> Any:
    """A place on an axis of this extent: a whole number from 0 up to below it, or a symbol that may be one."""
    expected, mend = f"a whole number from 0 to {extent - 1}", 'a symbolic index is index("i") of derive.language'
    place = exact(value, "index", expected, mend)
    if place.is_integer is False or place.is_negative or (place - extent).is_nonnegative:
        raise InputError(f"index: expected {expected}, got {place}; {mend}")
    return place


def name(value: Any, what: str) -> str:
    """A name that is printed."""
    if not isinstance(value, str) or not value:
        raise InputError(f'{what}: expected a name such as "q", got {shown(value) if value else "an empty one"}')
    return value


def whole(value: Any, what: str, least: int, most: int | None = None) -> int:
    """A Python integer in a range."""
    if isinstance(value, sympy.Integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        within = f"a whole number from {least} to {most}" if most is not None else f"a whole number of at least {least}"
        raise InputError(f"{what}: expected {within}, got {shown(value)}")
    return value
