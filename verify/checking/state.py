"""Global state that a target must leave as it found it: random seeds, error flags, flush to zero, working folder.

Guarantees: a change between two snapshots is named. Does not: see state that a target keeps to itself.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

from verify.checking.libraries import Library


def snapshot(library: Library) -> dict[str, Any]:
    """The state now, by name."""
    legacy: Any = np.random.get_state()  # noqa: NPY002 - the global generator is what must not move
    return {
        "random seed of Python": hash(random.getstate()),
        "random seed of NumPy": hash(legacy[1].tobytes()) ^ int(legacy[2]),
        "NumPy error handling": tuple(sorted(np.geterr().items())),
        "flush to zero": flushes_to_zero(),
        "working folder": os.getcwd(),
        **library.state(),
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    """Names of what differs."""
    return tuple(name for name, value in before.items() if after.get(name) != value)


def flushes_to_zero() -> bool:
    """Whether this thread's float64 product 2^-1060 · 2^-10 is flushed, compared by bit pattern."""
    product = np.array([2.0**-1060]) * np.array([2.0**-10])
    return int(product.view(np.uint64)[0]) == 0
