"""The number of an expression: nodes by the oracle, integrals over the line by quadrature, the rest in floating point.

Guarantees: a missing parameter is an error that names it. Does not: estimate its own error (see `derive.oracle`).
"""

from __future__ import annotations

from typing import Any

import sympy

from derive.errors import StatementError
from derive.line_integrals import line_integral


def numeric(expression: Any, values: dict[str, float]) -> float:
    """The value of an expression at {symbol name: value}: nodes by the oracle, the rest in double precision."""
    missing = sorted(s.name for s in expression.free_symbols if s.name not in values)
    if missing:
        raise StatementError(f"{expression} needs {', '.join(missing)}; given are {', '.join(sorted(values))}")
    chosen = {s: _exact(values[s.name]) for s in expression.free_symbols if s.name in values}
    placed = expression.subs(chosen)
    integrals = {i: sympy.Float(line_integral(i), 17) for i in placed.atoms(sympy.Integral)}
    return float(placed.xreplace(integrals).evalf(17))


def _exact(value: float) -> Any:
    return sympy.Integer(int(value)) if float(value).is_integer() and abs(value) < 2**53 else sympy.Float(value, 17)
