"""What `compute` says for the quantity of a claim, and how far float64 may take it from the exact value.

Guarantees: for each claim named here, a call of `compute` (or the plain matrix product it rests on) on the inputs of
the cross-check, and a worst-case bound on its error from `PlainSteps` or from the any-order dot product.
Does not: use the claim's own formula: that is what it is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verify.crosschecking.draws import Inputs

# claim id -> inputs -> (array over the claim's free indices in their order, worst-case bound of each entry)
Counterpart = Callable[[Inputs], tuple[Any, Any]]
COUNTERPARTS: dict[str, Counterpart] = {}
