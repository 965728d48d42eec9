"""A witness in one short line, for the text of a verdict.

Guarantees: at most `LENGTH` characters; a number is printed as it is where it is exact, else behind "≈" with as many
digits as tell the two sides apart; what is left out is marked with "…". The witness itself holds everything.
Does not: round a witness: the line is made from it and nothing is decided by it.

>>> brief({"n": 2}, {"x[0]": "1", "x[1]": "2"}, ("5.0", "5.0"), ("9.0", "9.0"))
'at n = 2, x = (1, 2): 5 against 9'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Context, Decimal

LENGTH = 91
_FEWEST, _MOST = 4, 18
_Interval = tuple[str, str]


def brief(sizes: Mapping[str, int], values: Mapping[str, str], lhs: _Interval, rhs: _Interval) -> str:
    """Where the sides differ and their values there: "at n = 2, x = (1, 2): 5 against 9".

    sizes, values: as a witness has them, an entry of an array as "x[0]". lhs, rhs: disjoint intervals, in decimals.
    """
    sides = _sides(lhs, rhs)
    places = [*(f"{name} = {value}" for name, value in sorted(sizes.items())), *_arrays(values)]
    if not places:
        return f"at every point: {sides}"
    whole = f"at {', '.join(places)}: {sides}"
    kept = len(places)
    while len(whole) > LENGTH and kept:
        kept -= 1
        whole = f"at {', '.join([*places[:kept], '…'])}: {sides}"
    return whole


def _arrays(values: Mapping[str, str]) -> list[str]:
    """Scalars and entries, the entries 0, 1, … of one row as a tuple."""
    rows: dict[str, dict[int, str]] = {}
    for name, value in values.items():
        if one := re.fullmatch(r"(.+)\[(\d+)\]", name):
            rows.setdefault(one[1], {})[int(one[2])] = value
    shown: list[str] = []
    for name, value in values.items():
        row = rows.get(name.split("[")[0], {}) if name.count(",") == 0 and "[" in name else {}
        if len(row) < 2 or sorted(row) != list(range(len(row))):
            shown.append(f"{name} = {value}")
        elif name.endswith("[0]"):
            shown.append(f"{name[:-3]} = ({', '.join(row[at] for at in range(len(row)))})")
    return shown


def _sides(lhs: _Interval, rhs: _Interval) -> str:
    for digits in range(_FEWEST, _MOST + 1):
        left, right = _number(lhs, digits), _number(rhs, digits)
        if left is None or right is None:
            continue
        if left.strip("≈") != right.strip("≈") or (_exact(lhs) and _exact(rhs)):
            return f"{left} against {right}"
    return "both sides are in the evidence"


def _exact(ends: _Interval) -> bool:
    return ends[0] == ends[1]


def _number(ends: _Interval, digits: int) -> str | None:
    """The number in digits; None where the ends of its interval are different numbers at so many."""
    if _exact(ends) and len(ends[0]) <= _MOST:
        return _plain(Decimal(ends[0]))
    low, high = (Context(prec=digits).create_decimal(end) for end in ends)
    return "≈" + _plain(low) if low == high and low.is_finite() else None


def _plain(value: Decimal) -> str:
    value = value.normalize()
    return f"{value:f}" if -5 <= value.adjusted() < _MOST or not value else f"{value:e}"
