"""Attention by its formulas, whole matrices at a time: the reference that the fast algorithms are held to.

Guarantees: each line is one formula of the definition; O(n·m) memory; masked cells are selected, so whatever they
hold is inert; an empty row is what the Spec says.
Does not: guard the unshifted form: with shifted=False, exp over- and underflows where the scores are large, which
is what that form is kept for (its errors are studied).

Source: Vaswani et al. 2017, section 3.2.1, equation (1); gradients: Dao et al. 2022 (FlashAttention), appendix B.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from compute.arrays import Array
from compute.errors import InputError
from compute.meaning import ALL, Part
from compute.select import finite, weigh, weigh_signed


@dataclass(frozen=True)
class Scores:
    """s: logits with −inf where not allowed; slope: d(capped)/d(uncapped) or None; allowed: bool or None."""

    s: Array
    slope: Array | None
    allowed: Array | None


@dataclass(frozen=True)
class Softmax:
    """p: weights; sink: its weight or None; lse: natural log-sum-exp; empty: rows with no key and no sink."""

    p: Array
    lse: Array
    empty: Array
    sink: Array | None


@dataclass(frozen=True)
class PartGradients:
    """Gradients of one part in its own shapes; dbias is (…, n, m), dscale and dsink are summed over rows."""

    dq: Array
    dk: Array
    dv: Array
    dbias: Array
    dsink: Array | None
    dscale: float


def scores(part: Part, rows: slice = ALL, cols: slice = ALL) -> Scores:
    """s_ij = cap(τ q_i·k_j) + bias_ij where key j takes part, −inf elsewhere."""
    xp, dtype = part.xp, part.dtype
    s = (part.queries(rows) @ part.keys(cols).swapaxes(-1, -2)) * dtype.type(part.scale)
    slope = None
    if part.softcap is not None:
        cap = dtype.type(part.softcap)
        turned = xp.tanh(s / cap)
        s, slope = cap * turned, 1 - turned * turned
    bias = part.bias(rows, cols)
    if bias is not None:
        s = s + bias
    allowed = part.allowed(rows, cols)
    if allowed is not None:
        s = xp.where(allowed, s, dtype.type(-math.inf))
    return Scores(s, slope, allowed)


def weights(part: Part, scored: Scores, *, shifted: bool) -> Softmax:
    """Softmax over the allowed keys and the sink."""
    xp, s, kind = part.xp, scored.s, part.dtype.type
    column = (*s.shape[:-1], 1)
    sink = None if part.sink is None else xp.broadcast_to(xp.asarray(part.sink, dtype=s.dtype), column)
    if scored.allowed is None:
        empty = xp.full(column, part.m == 0)
    else:
        empty = ~xp.broadcast_to(scored.allowed, s.shape).any(axis=-1, keepdims=True)
    top = xp.zeros(column, dtype=s.dtype)
    if shifted:
        top = s.max(axis=-1, keepdims=True) if part.m else xp.full(column, -math.inf, dtype=s.dtype)
        if sink is not None:
            top = xp.maximum(top, sink)
        top = xp.where(top == -math.inf, kind(0), top)
    w = xp.exp(s - top)
    total, own = w.sum(axis=-1, keepdims=True), None
    if sink is not None:
        empty = empty & (sink == -math.inf)
        own = xp.exp(sink - top)
        total = total + own
    safe = xp.where(empty, kind(1), total)
    lse = xp.where(empty, kind(-math.inf), top + xp.log(safe))
    p = w / safe
    if scored.allowed is not None:
        # A row that is NaN is so only where it sees a key.
        p = xp.where(scored.allowed, p, kind(0))
    return Softmax(p, lse, empty, None if own is None else own / safe)


def forward(part: Part, *, shifted: bool = True) -> tuple[Array, Array]:
    """(output (…, n, d_v), natural log-sum-exp (…, n)) in the work dtype."""
    with np.errstate(all="ignore"):
        scored = scores(part)
        soft = weights(part, scored, shifted=shifted)
        p, seen = dropped(part, soft.p, scored.allowed)
        out = weigh(part.xp, p, part.values(), seen)
        return fill_empty(part, out, soft.empty), soft.lse[..., 0]


def dropped(
    part: Part, p: Array, allowed: Array | None, rows: slice = ALL, cols: slice = ALL
) -> tuple[Array, Array | None]:
    """Weights after dropout, and which keys are still seen."""
    drop = part.dropout(rows, cols)
    if drop is None:
        return p, allowed
    kept = drop != 0
    return p * drop, kept if allowed is None else allowed & kept


def fill_empty(part: Part, out: Array, empty: Array) -> Array:
    """Output with its empty rows as the Spec wants them. Raises InputError where it wants an error."""
    xp, rule = part.xp, part.spec.empty_row
    if rule == "zero" or not bool(empty.any()):
        return xp.where(empty, part.dtype.type(0), out)
    if rule == "error":
        where = tuple(int(i) for i in xp.argwhere(empty[..., 0])[0])
        raise InputError(f"row {where} has no key that takes part, and the Spec says empty_row='error'")
    if rule == "nan":
        return xp.where(empty, part.dtype.type(math.nan), out)
    return xp.where(empty, mean_value(part), out)


def mean_value(part: Part) -> Array:
    """(…, 1, d_v): the mean over the keys that exist; 0 where none does."""
    xp = part.xp
    there = (xp.arange(part.m)[:, None] < part.length).astype(part.dtype)
    count = xp.maximum(there.sum(axis=-2, keepdims=True), 1)
    return weigh(xp, there.swapaxes(-1, -2), part.values(), there.swapaxes(-1, -2) != 0) / count


def backward(part: Part, grad_out: Array, grad_lse: Array | None, *, shifted: bool = True) -> PartGradients:
    """Gradients of Σ grad_out·output + Σ grad_lse·lse (lse in the Spec's base).

    dS = P ∘ (dP − D + dlse), D = Σ_j P_ij dP_ij; dQ = τ dS K, dK = τ dSᵀ Q, dV = Pᵀ dO. Empty rows give nothing
    back, except to the values where the Spec makes them a mean.
    """
    xp, zero = part.xp, part.dtype.type(0)
    with np.errstate(all="ignore"):
        scored = scores(part)
        soft = weights(part, scored, shifted=shifted)
        p, empty = soft.p, soft.empty
        q, k, v = part.queries(), part.keys(), part.values()
        used, seen = dropped(part, p, scored.allowed)
        seen_back = None if seen is None else xp.broadcast_to(seen, p.shape).swapaxes(-1, -2)
        allowed_back = None if scored.allowed is None else xp.broadcast_to(scored.allowed, p.shape).swapaxes(-1, -2)

        dv = weigh_signed(xp, used.swapaxes(-1, -2), grad_out, seen_back)
        dp = grad_out @ v.swapaxes(-1, -2)
        if seen is not None:
            dp = xp.where(seen, dp, zero)
        drop = part.dropout()
        if drop is not None:
            dp = dp * drop
        delta = (p * dp).sum(axis=-1, keepdims=True)
        if grad_lse is not None:
            delta = delta - grad_lse[..., None] / part.dtype.type(math.log(part.spec.lse_base))
        ds = p * (dp - delta)
        ds = xp.where(empty if scored.allowed is None else empty | ~scored.allowed, zero, ds)
        dsink = None
        if soft.sink is not None:
            dsink = -xp.where(empty, zero, soft.sink * delta).sum(axis=(-1, -2))
        dbias, inner = ds, ds if scored.slope is None else ds * scored.slope
        if scored.slope is not None and scored.allowed is not None:
            inner = xp.where(scored.allowed, inner, zero)
        tau = part.dtype.type(part.scale)
        pulled = weigh_signed(xp, inner, k, scored.allowed)
        dk = weigh_signed(xp, inner.swapaxes(-1, -2), q, allowed_back) * tau
        if part.spec.empty_row == "mean" and bool(empty.any()):
            dv = dv + mean_gradient(part, grad_out, empty)
        own = q if finite(xp, q) else xp.where(empty, zero, q)
        dscale = float((own.astype(xp.float64) * pulled).sum())
        return PartGradients(part.grad_queries(ALL, pulled * tau), part.grad_keys(ALL, dk), dv, dbias, dsink, dscale)


def mean_gradient(part: Part, grad_out: Array, empty: Array) -> Array:
    """(…, m, d_v): what the empty rows that are a mean give back to each key that exists."""
    xp = part.xp
    there = (xp.arange(part.m)[:, None] < part.length).astype(part.dtype)
    count = xp.maximum(there.sum(axis=-2, keepdims=True), 1)
    return there * (xp.where(empty, grad_out, part.dtype.type(0)).sum(axis=-2, keepdims=True) / count)
