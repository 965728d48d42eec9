"""Slopes of ALiBi, the linear bias by distance.

Guarantees: the geometric sequence of the paper for a power of two; for other head counts, that of the next lower
power of two followed by every other slope of the doubled one, as the paper's own code does.
Does not: apply them (`alibi_slopes=` of compute.attention does).

Source: Press et al. 2022, section 3 and footnote 8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compute.checks import whole
from compute.errors import InputError


def standard_slopes(heads: int) -> NDArray[np.float64]:
    """(heads,) slopes: 2^(−8/h), 2^(−16/h), … Raises InputError for what is no number of heads.

    >>> standard_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    heads = whole("heads", heads, 1, "a number of heads")
    if heads > 2**20:
        raise InputError("heads is beyond 2^20: expected a number of heads")
    low = 1 << (heads.bit_length() - 1)
    first = 2.0 ** (-8.0 * np.arange(1, low + 1) / low)
    second = 2.0 ** (-4.0 * np.arange(1, 2 * low + 1, 2) / low)
    return np.concatenate([first, second])[:heads]
