"""Arguments of the wrong kind become one clear InputError: strings for numbers, lists for arrays, numbers for flags.

Guarantees: each check accepts exactly what its words say, NumPy's own scalars included, and names the argument, what
was expected and what was got.
Does not: look at shapes, or convert what was given (a whole number comes back as an int).
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from compute.errors import InputError


def shown(value: object) -> str:
    """The value in a message; an array by its kind only."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a whole number beyond 10^30"
    return text if len(text) <= 60 else f"{text[:57]}..."


def whole(name: str, value: object, least: int, what: str) -> int:
    """A whole number of at least `least` (a bool is none); `what` says what it counts."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} is {shown(value)}: expected {what}, a whole number of at least {least}")
    return int(value)


def number(name: str, value: object, what: str) -> float:
    """A finite real number (a bool is none)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} is {shown(value)}: expected {what}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InputError(f"{name} is {shown(value)}: expected {what}, finite")
    return found


def choice(name: str, value: object, options: tuple[str, ...]) -> None:
    """One of the strings."""
    if not isinstance(value, str) or value not in options:
        raise InputError(f"{name} is {shown(value)}: expected one of {', '.join(map(repr, options))}")


def flag(name: str, value: object) -> None:
    """True or False, Python's or NumPy's."""
    if not isinstance(value, bool) and not (type(value).__module__ == "numpy" and str(value) in ("True", "False")):
        raise InputError(f"{name} is {shown(value)}: expected True or False")


def required(**arrays: Any) -> Any:
    """The one library of all arrays; none may be missing."""
    from compute.arrays import namespace  # NumPy is loaded when an array is looked at

    for name, array in arrays.items():
        if array is None:
            raise InputError(f"{name} is None: expected a NumPy or CuPy array")
    return namespace(**arrays)


def floating(**arrays: Any) -> Any:
    """The one library of all arrays, each of a floating dtype."""
    from compute.arrays import is_float

    xp = required(**arrays)
    for name, array in arrays.items():
        if not is_float(array.dtype):
            raise InputError(f"{name} has dtype {array.dtype}: expected float64, float32, float16 or bfloat16")
    return xp
