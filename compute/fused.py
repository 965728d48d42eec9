"""Elementwise steps of the tiled algorithms: in place on the CPU, one kernel each on a GPU.

Guarantees: the same values on both, up to the libraries' exp; nothing is allocated on the CPU.
Does not: keep subnormal float32 numbers on a GPU (CuPy compiles with flush to zero).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace

_KERNELS = {
    # name: (inputs, output, operation); operands broadcast, T is their common type
    "shifted_exp": ("T s, T base", "T out", "out = exp(s - base)"),
    "shifted_exp2": ("T s, T base, T rest", "T out", "out = exp2((s - base) * rest)"),
    "weighted_gap": ("T grad, T delta, T weight", "T out", "out = (grad - delta) * weight"),
}


@cache
def _kernel(xp: Namespace, name: str) -> Any:
    return xp.ElementwiseKernel(*_KERNELS[name], name)


def exp_of_gap(xp: Namespace, s: Array, base: Array, rest: Array | None) -> None:
    """s ← exp(s − base), or exp2((s − base)·rest) where rest is given."""
    if xp is not np:
        if rest is None:
            _kernel(xp, "shifted_exp")(s, base, s)
        else:
            _kernel(xp, "shifted_exp2")(s, base, rest, s)
        return
    s -= base
    if rest is None:
        np.exp(s, out=s)
    else:
        s *= rest
        np.exp2(s, out=s)


def weighted_gap(xp: Namespace, grad: Array, delta: Array, weight: Array) -> None:
    """grad ← (grad − delta)·weight."""
    if xp is not np:
        _kernel(xp, "weighted_gap")(grad, delta, weight, grad)
        return
    grad -= delta
    grad *= weight
