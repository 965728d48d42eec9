"""Laws as functions: the right side of a claim, evaluated at numbers.

Guarantees: the number comes from the claim's own SymPy expression, by substitution and evaluation to 30 digits; a
symbol without a value is an error that names it.
Does not: know any formula itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from verify.errors import UsageError

Law = Callable[[Mapping[str, float]], float]


def law(claim_id: str) -> Law:
    """The right side of a claim as a function of {symbol name: value}. Raises derive's UnknownClaim."""
    import derive

    rhs: Any = derive.claim(claim_id).rhs

    @cache
    def at(values: tuple[tuple[str, float], ...]) -> float:
        given = dict(values)
        missing = sorted(s.name for s in rhs.free_symbols if s.name not in given)
        if missing:
            raise UsageError(f"the law {claim_id} needs {', '.join(missing)}; given are {', '.join(sorted(given))}")
        number = rhs.xreplace({s: _exact(given[s.name]) for s in rhs.free_symbols}).doit()
        return float(number.evalf(30))

    return lambda values: at(tuple(sorted(values.items())))


def _exact(value: float) -> Any:
    import sympy

    return sympy.Integer(value) if isinstance(value, int) else sympy.Rational(value)
