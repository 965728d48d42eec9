"""Joins attention over disjoint sets of keys, from each part's output and log-sum-exp.

Guarantees: associative and commutative up to rounding; (0, −inf), the state of no keys, is neutral on both sides;
no overflow at any finite log-sum-exp.
Does not: know which base a log-sum-exp has; both must have the one that is named.

Source: Milakov and Gimelshein 2018, section 3.1; Dao 2023 (FlashAttention-2), section 3.1.
"""

from __future__ import annotations

import math

import numpy as np

from compute.arrays import Array
from compute.checks import floating, number
from compute.errors import InputError


def merge_states(out1: Array, lse1: Array, out2: Array, lse2: Array, *, base: float = math.e) -> tuple[Array, Array]:
    """(output, lse) over the keys of both parts. out (…, n, d_v), lse (…, n), in the given base.

    A part with a sink counts it; give the sink to one part only. Raises InputError for shapes that differ.

    >>> import numpy as np
    >>> out, lse = merge_states(np.ones((1, 1)), np.log([4.0]), np.zeros((1, 1)), np.log([1.0]))
    >>> round(float(out[0, 0]), 12), round(float(lse[0]), 6)
    (0.8, 1.609438)
    """
    xp = floating(out1=out1, lse1=lse1, out2=out2, lse2=lse2)
    if number("base", base, "a number above 1") <= 1:
        raise InputError(f"base is {base}: expected a number above 1, as e or 2")
    if out1.shape != out2.shape or lse1.shape != lse2.shape or out1.shape[:-1] != lse1.shape:
        raise InputError(
            f"out {tuple(out1.shape)} and {tuple(out2.shape)}, lse {tuple(lse1.shape)} and {tuple(lse2.shape)}: "
            "expected (…, n, d_v) twice and (…, n) twice"
        )
    kind = lse1.dtype.type
    with np.errstate(all="ignore"):
        top = xp.maximum(lse1, lse2)
        safe = xp.where(top == -math.inf, kind(0), top)
        log = kind(math.log(base))
        a, b = (xp.exp((x - safe) * log)[..., None] for x in (lse1, lse2))
        total = a + b
        scale = xp.where(total == 0, kind(1), total)
        # A part without keys is left out, whatever its output holds.
        parts = [xp.where(w == 0, kind(0), (w / scale) * o) for w, o in ((a, out1), (b, out2))]
        lse = xp.where(top == -math.inf, top, safe + xp.log(scale[..., 0]) / log)
        return (parts[0] + parts[1]).astype(out1.dtype), lse.astype(lse1.dtype)
