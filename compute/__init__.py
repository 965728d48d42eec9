"""What a machine makes of attention: values, gradients, enclosures, tolerances, Monte Carlo. NumPy or CuPy.

Guarantees: the array library follows the inputs, and no GPU package is imported unless a GPU array is given.
`compute` never imports `derive` or `verify`.
Does not: prove formulas (that is `derive`), or judge an implementation (`verify`).

Importing this package is cheap: NumPy is loaded when something is first computed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compute.bounds import Eager as Eager
    from compute.bounds import Flash as Flash
    from compute.bounds import Tolerance as Tolerance
    from compute.bounds import tolerance as tolerance
    from compute.calls import Gradients as Gradients
    from compute.calls import attention as attention
    from compute.calls import attention_backward as attention_backward
    from compute.functions import function_from as function_from
    from compute.spec import Rope as Rope
    from compute.spec import Spec as Spec

# Public name -> module that defines it. No module is called like a public name, so neither can hide the other.
_HOMES = {
    "function_from": "compute.functions",
    "attention": "compute.calls",
    "attention_backward": "compute.calls",
    "Gradients": "compute.calls",
    "Eager": "compute.bounds",
    "Flash": "compute.bounds",
    "Tolerance": "compute.bounds",
    "tolerance": "compute.bounds",
    "Spec": "compute.spec",
    "Rope": "compute.spec",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'compute' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
