"""Rows without any key in one output: what is declared of them, or one of the conventions.

Guarantees: such a row is 0, NaN or the mean of all values (within what rounding allows a mean), throughout; where a
convention is declared, that one. Without keys at all there is no mean: 0 or NaN.
Does not: ask that all rows follow one convention where none is declared.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from compute.spec import Spec
from verify.checking.calls import Array, Call
from verify.checking.specs import CONVENTIONS
from verify.checking.values import Answer, Violation, answer

ANY = CONVENTIONS["empty-row"]


def misread_rows(call: Call, output: Array, known: Answer, declared: Collection[str] = ANY) -> list[Violation]:
    """The first row (b, h, n) of `output` without keys that is none of what `declared` names, or none.

    declared: of "zero", "mean", "nan"; with "error" alone no output of such a row is right.
    """
    empty = known.right.empty & ~known.right.outside
    if not empty.any() or not output.size:
        return []
    given = output.astype(np.float64)
    met = np.zeros(empty.shape, bool)
    wanted = []
    if "zero" in declared:
        met |= (given == 0).all(-1)
        wanted.append("0")
    if "nan" in declared or ("mean" in declared and not call.k.shape[2]):
        met |= np.isnan(given).all(-1)
        wanted.append("NaN")
    if "mean" in declared and call.k.shape[2]:
        # Equal scores of every key: their answer is the mean, with the worst case of the same algorithms.
        plain = Call(np.zeros_like(call.q), np.zeros_like(call.k), call.v, Spec(scale=1.0))
        mean = answer(plain, known.judge)
        with np.errstate(invalid="ignore"):
            near = np.abs(given - mean.right.output) <= mean.allowed.total + mean.right.radius
        beyond = ~np.isfinite(mean.right.output) & ~np.isfinite(given)  # a value of NaN or inf has no finite mean
        met |= (near | beyond).all(-1)
        wanted.append("the mean of all values")
    bad = empty & ~met
    if not bad.any():
        return []
    row = tuple(int(i) for i in np.argwhere(bad)[0])
    value = float(given[row][0])
    right = " or ".join(wanted) or "an exception, no output"
    text = f"a row without any key is {value:.9g}: expected {right}"
    return [Violation("empty row", text, (*row, 0), value)]
