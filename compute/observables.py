"""Numbers measured on rows of attention: concentration, entropy, and the size of the softmax Jacobian.

Guarantees: every observable takes scores (…, n), not weights, and works from the gaps to the largest score, so
that it keeps its relative accuracy when the row saturates: 1 − max α, the entropy and ‖J‖_F stay right to a few n
ulp down to 1e-300, where 1 − Σα² and Σα² − 2Σα³ + (Σα²)² have lost every digit. A key masked by −inf counts as
absent. NumPy or CuPy, by the type of the input.
Does not: sample anything (`compute.sampling`), or accumulate (`compute.accumulate`).

Notation: α = softmax(s); J = diag(α) − ααᵀ its Jacobian; p_k = Σ_j α_j^k.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compute.errors import InputError


@dataclass(frozen=True)
class Observable:
    """A number measured on arrays. name; what it is, in words; unit; and the function (scores (…, n) → (…))."""

    name: str
    meaning: str
    unit: str
    measure: Callable[[Any], Any]

    def __call__(self, scores: Any) -> Any:
        return self.measure(scores)


def _namespace(array: Any) -> Any:
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return cupy
    import numpy

    return numpy


@dataclass(frozen=True)
class _Row:
    """A row by its gaps, sorted so that the largest score is first.

    ratio: e^(second − first), at most 1; u: e^(s_j − second) for j ≥ 2, at most 1 (1 in its first place);
    gap: first − s_j for j ≥ 2. Weights are α_1 = 1/(1+q), α_j = ratio·u_j/(1+q), with q = ratio·Σu.
    """

    xp: Any
    ratio: Any
    u: Any
    gap: Any

    @property
    def rest(self) -> Any:
        return self.ratio * self.u.sum(axis=-1)


def _row(scores: Any) -> _Row:
    xp = _namespace(scores)
    s = xp.asarray(scores, dtype=xp.float64)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise InputError(f"scores have shape {s.shape}: expected (…, n) with at least one key")
    unread = bool(xp.isnan(s).any())
    s = -xp.sort(-s, axis=-1)
    if unread or not bool(xp.isfinite(s[..., 0]).all()):
        raise InputError("a row of scores has no finite largest entry: expected no NaN, no +inf, and a key that counts")
    if s.shape[-1] == 1:
        nothing = xp.zeros((*s.shape[:-1], 0))
        return _Row(xp, xp.zeros(s.shape[:-1]), nothing, nothing)
    second = xp.where(xp.isfinite(s[..., 1]), s[..., 1], s[..., 0] - 1e4)
    return _Row(xp, xp.exp(second - s[..., 0]), xp.exp(s[..., 1:] - second[..., None]), s[..., :1] - s[..., 1:])


def largest_weight(scores: Any) -> Any:
    """max_j α_j of rows of scores (…, n); shape (…)."""
    return 1.0 / (1.0 + _row(scores).rest)


def missing_weight(scores: Any) -> Any:
    """1 − max_j α_j, without cancellation: the total variation distance of the row to its largest key."""
    rest = _row(scores).rest
    return rest / (1.0 + rest)


def participation(scores: Any) -> Any:
    """Σ_j α_j² of rows of scores (…, n): 1/n for a uniform row, 1 for a saturated one."""
    row = _row(scores)
    total = 1.0 + row.rest
    return (1.0 + row.ratio**2 * (row.u**2).sum(axis=-1)) / total**2


def entropy(scores: Any) -> Any:
    """−Σ_j α_j ln α_j in nats, as ln(1+q) + Σ_{j≥2} α_j gap_j: both terms are non-negative, so nothing cancels."""
    row = _row(scores)
    xp, rest = row.xp, row.rest
    gap = xp.where(row.u > 0, row.gap, 0.0)
    return xp.log1p(rest) + row.ratio * (row.u * gap).sum(axis=-1) / (1.0 + rest)


def jacobian_norm(scores: Any) -> Any:
    """‖J‖_F of rows of scores (…, n), J = diag(α) − ααᵀ.

    ‖J‖_F² = Σ_i α_i²(1−α_i)² + Σ_{i≠j} α_i²α_j², with α_1 split off, 1 − α_1 taken as q/(1+q), and the common
    factor of the second weight taken out before squaring, so that nothing underflows before ‖J‖_F itself does.
    """
    row = _row(scores)
    xp, ratio, u = row.xp, row.ratio, row.u
    total = 1.0 + row.rest
    first = 1.0 / total
    v = u / total[..., None]
    alpha = ratio[..., None] * v
    square = (v**2).sum(axis=-1)
    fourth = (v**4).sum(axis=-1)
    scaled = (first * v.sum(axis=-1)) ** 2
    scaled = scaled + (v**2 * (1.0 - alpha) ** 2).sum(axis=-1) + 2.0 * first**2 * square
    scaled = scaled + ratio**2 * xp.maximum(square**2 - fourth, 0.0)
    return ratio * xp.sqrt(scaled)


def row_variance(scores: Any) -> Any:
    """Variance over the keys of each row of scores (…, n), divided by n: the only spread that softmax sees."""
    xp = _namespace(scores)
    s = xp.asarray(scores, dtype=xp.float64)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise InputError(f"scores have shape {s.shape}: expected (…, n) with at least one key")
    return s.var(axis=-1)


OBSERVABLES = {
    one.name: one
    for one in (
        Observable("row_variance", "variance of a row of scores over its keys", "score²", row_variance),
        Observable("largest_weight", "largest attention weight of a row", "1", largest_weight),
        Observable("missing_weight", "weight outside the largest key", "1", missing_weight),
        Observable("participation", "sum of the squared attention weights of a row", "1", participation),
        Observable("entropy", "entropy of a row of attention weights", "nat", entropy),
        Observable("jacobian_norm", "Frobenius norm of the softmax Jacobian of a row", "1", jacobian_norm),
    )
}
