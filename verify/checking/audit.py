"""A scale audit: which scale do these scores have?

Guarantees: the fitted factor is the least-squares one of scores against q·k; a name is given only when it fits within
the rounding of the scores' dtype, and two names that coincide at these sizes are both given.
Does not: need the code that made the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.checking.libraries import as_numpy
from verify.errors import UsageError


@dataclass(frozen=True)
class ScaleAudit:
    """factor: scores ≈ factor·q·k. names: which known scales it is. fit: the largest residual over the largest score;
    far above `allowed` when the scores are no multiple of q·k at all."""

    factor: float
    names: tuple[str, ...]
    fit: float
    allowed: float

    def text(self) -> str:
        """One line for people."""
        if self.fit > self.allowed:
            return (
                f"no scale: scores are no multiple of q·k (residual {self.fit:.2g}, rounding allows {self.allowed:.2g})"
            )
        named = " = ".join(self.names) or "none of the known scales"
        return f"scores = {self.factor:.9g} · q·k: {named}"


def scale_audit(q: Any, k: Any, scores: Any, *, d_model: int | None = None) -> ScaleAudit:
    """Which of 1/sqrt(d_k), 1/sqrt(d_model), 1/d_k, 1/d_model, 1, sqrt(d_k) or none the scores have.

    q (…, n, d_k), k (…, m, d_k), scores (…, n, m), before mask and softmax, of any array library. d_model: by default
    heads·d_k where q has a heads axis (…, h, n, d_k).

    Raises UsageError for shapes that don't fit, or q·k that is zero.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.standard_normal((2, 4, 6, 16)), rng.standard_normal((2, 4, 6, 16))
    >>> scale_audit(q, k, q @ k.swapaxes(-1, -2) / 8).text()
    'scores = 0.125 · q·k: 1/sqrt(d_model)'
    """
    a, b, s = (as_numpy(x) for x in (q, k, scores))
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise UsageError(f"q {a.shape} and k {b.shape}: expected (…, n, d_k) and (…, m, d_k)")
    dots = a.astype(np.float64) @ b.astype(np.float64).swapaxes(-1, -2)
    if s.shape != dots.shape:
        raise UsageError(f"scores {s.shape}: expected {dots.shape}, as q·k")
    given = s.astype(np.float64)
    size = float((dots * dots).sum())
    if not size or not np.isfinite(given).all():
        raise UsageError(
            "q·k is zero, or a score is not finite: no scale can be read off (pass scores before the mask)"
        )
    factor = float((given * dots).sum()) / size
    d = a.shape[-1]
    unit = max(_unit(s.dtype.name), _unit(a.dtype.name))
    largest = float(np.abs(given).max()) or 1.0
    reach = float((np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).swapaxes(-1, -2)).max())
    allowed = (d + 6) * unit * abs(factor) * reach / largest + 2 * unit
    fit = float(np.abs(given - factor * dots).max()) / largest
    heads = a.shape[-3] if a.ndim > 2 else 1
    wide = d_model if d_model is not None else heads * d
    known = {
        "1/sqrt(d_k)": 1 / math.sqrt(d), "1/sqrt(d_model)": 1 / math.sqrt(wide), "1/d_k": 1 / d, "1/d_model": 1 / wide,
        "1": 1.0, "sqrt(d_k)": math.sqrt(d), "d_k^(-1/4)": d**-0.25,
        "log2(e)/sqrt(d_k)": math.log2(math.e) / math.sqrt(d),
    }  # fmt: skip
    names = [name for name, value in known.items() if abs(factor - value) <= max(allowed, 1e-12) * value]
    return ScaleAudit(factor, tuple(names) if fit <= allowed else (), fit, allowed)


def _unit(dtype: str) -> float:
    from compute.errors import InputError
    from compute.roundings import limits

    try:
        return limits(dtype).unit
    except InputError:
        return 2.0**-53
