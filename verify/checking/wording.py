"""Words of a check's report: kinds of fault that inputs are about, what a row sees, what a failure needs.

Guarantees: plain text from plain data.
Does not: judge anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verify.checking.values import Answer

# Kinds of fault that the inputs of a full run are about, for a target of every feature.
KINDS = (
    "softmax missing", "softmax axis", "scale", "head padding", "layout", "d_v != d_k", "zero length", "no max shift",
    "finite -inf", "tile max", "key dropped", "index width", "strides", "mask meaning", "mask axis", "mask broadcast",
    "mask arithmetic", "mask composition", "mask dropped", "empty row", "causal dropped", "causal alignment", "window",
    "window decode", "static cache", "GQA order", "GQA axis", "softcap order", "softcap dropped", "sink",
    "softmax plus one", "ALiBi", "RoPE layout", "RoPE precision", "LSE", "LSE base", "LSE overflow", "dropout",
    "gradient", "bias gradient", "softcap gradient", "LSE gradient", "GQA gradient", "packed gradient",
    "scale gradient", "RoPE gradient", "ragged tile", "approximate exp",
)  # fmt: skip


def needs(kind: str, diagnosis: str, needed: tuple[str, ...]) -> tuple[str, str]:
    """(kind, diagnosis) of a failure that goes when any one of the features `needed` goes.

    One feature alone is no diagnosis: the smallest call shows it.
    """
    if len(needed) == 1:
        return kind, diagnosis
    listed = " and ".join(needed)
    tail = f"shows only where {listed} meet: without any one of them the same call agrees"
    return (kind, f"{diagnosis}; {tail}") if diagnosis else (f"{listed} together", tail)


def row_text(known: Answer, index: tuple[int, ...]) -> tuple[str, tuple[tuple[int, float], ...]]:
    """Which keys the row sees, and those of the largest weights."""
    b, h, i = index[:3]
    seen, weights = known.right.seen[b, h, i], known.right.weights[b, h, i]
    count, m = int(seen.sum()), seen.size
    text = f"all {m} keys" if count == m else f"{count} of {m} keys: {_runs(seen)}"
    order = np.argsort(-weights)[:3]
    return text, tuple((int(j), float(weights[j])) for j in order if weights[j] > 0)


def _runs(seen: Any) -> str:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], seen.astype(int), [0]])))
    runs = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return ", ".join(runs[:6]) + (", ..." if len(runs) > 6 else "")
