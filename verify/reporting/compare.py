"""Whether two pages say the same: words to the letter, numbers to the last digit shown.

Guarantees: a number may differ by one unit of the last digit that is printed (what rounding can do to a value that a
different BLAS or libm moves by a few ulp), and nothing else may differ. Does not: know which page is right.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import zip_longest

# A number with its digits; signs belong to it where they do not follow a word (as the 2 in "d-2" does).
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\d)")


def differences(committed: str, fresh: str) -> list[str]:
    """Lines of the two texts that do not say the same, as "line N: was …, is …"; empty when they agree."""
    found = []
    for number, (a, b) in enumerate(zip_longest(committed.splitlines(), fresh.splitlines()), 1):
        if a is None or b is None or not _same(a, b):
            found.append(f"line {number}: was {a!r}, is {b!r}")
    return found


def _same(a: str, b: str) -> bool:
    if a == b:
        return True
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(_near(_decimal(x), _decimal(y)) for x, y in pairs)


def _decimal(text: str) -> Decimal:
    return Decimal(text.replace("−", "-"))


def _near(a: Decimal, b: Decimal) -> bool:
    # A whole number is a count: it has no rounding.
    last = [x.as_tuple().exponent for x in (a, b)]
    if any(not isinstance(e, int) or e >= 0 for e in last):
        return a == b
    return abs(a - b) <= Decimal(10) ** max(int(e) for e in last)
