"""Numbers of integrals over the real line that appear in statements.

Guarantees: integrands that are analytic near the line and fall off at both ends are integrated to about 1e-13; a result
that doesn't settle is an error, never a number.
Does not: treat integrals over other ranges or with symbolic parameters.

Double exponential quadrature (Takahasi and Mori 1974): z = sinh(π/2 sinh t), trapezoidal rule in t, step halved until
two results agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy

from derive.errors import StatementError


def line_integral(integral: Any) -> float:
    """The value of a SymPy Integral over (-oo, oo) without free symbols. Raises StatementError if it doesn't settle."""
    limits = integral.limits
    if len(limits) != 1 or tuple(limits[0][1:]) != (-sympy.oo, sympy.oo) or integral.free_symbols:
        raise StatementError(f"{integral}: expected one integral over the whole line without free symbols")
    body = sympy.lambdify(limits[0][0], integral.function, "numpy")
    before = None
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for level in range(3, 14):
            h = 2.0**-level
            t = h * np.arange(-int(4.2 / h), int(4.2 / h) + 1)
            z = np.sinh(np.pi / 2 * np.sinh(t))
            slope = np.pi / 2 * np.cosh(t) * np.cosh(np.pi / 2 * np.sinh(t))
            values = np.broadcast_to(body(z), z.shape) * slope
            # Far out the factors overflow one by one while their product is 0: such places carry nothing.
            now = float(np.sum(values[np.isfinite(values)])) * h
            if before is not None and abs(now - before) <= 1e-13 * abs(now):
                return now
            before = now
    raise StatementError(f"{integral} did not settle: {before} and {now} at the last two steps")
