"""The largest sizes that a run asked about, in words: beyond them it has shown nothing.

Guarantees: only answers that were judged count.
Does not: say that two largest sizes were met in one call.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verify.checking.calls import Call

WORDS = {
    "n": "{} queries", "m": "{} keys", "d_k": "d_k = {}", "d_v": "d_v = {}", "h": "{} query heads",
    "b": "a batch of {}",
}  # fmt: skip


@dataclass
class Extent:
    """The largest of each size so far."""

    largest: dict[str, int] = field(default_factory=dict)

    def add(self, call: Call) -> None:
        b, h, _, n, m, d_k, d_v = call.shape
        for name, size in {"n": n, "m": m, "d_k": d_k, "d_v": d_v, "h": h, "b": b}.items():
            self.largest[name] = max(size, self.largest.get(name, 0))

    def beyond(self, what: str) -> str:
        """`what` beyond the largest sizes tried; "" where nothing was tried.

        >>> import numpy as np
        >>> extent = Extent()
        >>> extent.add(Call(np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 5, 4)), np.zeros((1, 2, 5, 6))))
        >>> extent.beyond("values")
        'values beyond 3 queries, 5 keys, d_k = 4, d_v = 6, 2 query heads, a batch of 1 (each the largest tried)'
        """
        if not self.largest:
            return ""
        sizes = ", ".join(words.format(self.largest[name]) for name, words in WORDS.items())
        return f"{what} beyond {sizes} (each the largest tried)"
