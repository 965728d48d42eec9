"""Numbers as text: few enough digits that the last bits of a machine's arithmetic do not show.

Guarantees: one way of writing numbers on every page. Does not: hide a difference larger than its rounding.
"""

from __future__ import annotations

import math

from verify.studies.study import Cell


def number(value: float, digits: int = 4) -> str:
    """A number to `digits` significant digits.

    >>> number(0.00012345), number(1234.5678), number(65536.0), number(1e-17), number(float("inf"))
    ('0.0001234', '1235', '65540', '1.000e-17', 'inf')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    # The exponent after rounding: 0.099999 is 0.1000, not 0.10000.
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, digits - 1 - exponent)}f}"


def cell(value: Cell) -> str:
    """A table cell: floats rounded, integers and words as they are, nothing as a dash.

    >>> cell(3), cell(2.0), cell("α"), cell(None)
    ('3', '2.000', 'α', '–')
    """
    if value is None:
        return "–"
    return number(value) if isinstance(value, float) else str(value)
