"""Worst-case error of the gradients of a declared algorithm, per element: the second theorem of compute/bounds.md.

Guarantees: for a backward pass that recomputes the weights from the log-sum-exp (Flash) or keeps the stored ones
(Eager), with every order of its sums, |computed − exact| of dQ, dK, dV is at most the sum of the sources. Flash:
P = exp(s − lse), D = Σ go·output as stored, dS = P(dP − D); P and dS are cast to `weights` before their products.
Eager: P as stored in the forward pass, dP and dS stored in `scores` (or kept), D = Σ P dP in `accumulate`.
Does not: speak of the gradients of bias, scale and sink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compute.heads import F64, Head
from compute.roundings import Algorithm, Eager, Flash, dot_error, limits
from compute.worst_case import U, Units, forward, growth, score_errors, shift_error

NAMES = ("dq", "dk", "dv")
SOURCES = ("weights", "delta", "cast", "sums", "output")


@dataclass
class GradientBound:
    """One gradient of one head: sources (SOURCES, rows, width), its size, and where it may overflow."""

    sources: F64
    size: F64
    overflow: NDArray[np.bool_]


def gradients(head: Head, alg: Algorithm, grad: F64) -> dict[str, GradientBound]:
    """Bounds for one head; grad (n, d_v) is exact as given."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _gradients(head, alg, np.where(head.blank[:, None], 0.0, grad))


def _gradients(head: Head, alg: Algorithm, go: F64) -> dict[str, GradientBound]:
    units = Units.of(alg, head.m)
    n, m, d_v = head.n, head.m, head.v.shape[1]
    u, tau = units.u, abs(head.scale.value)
    rows = slice(0, n)
    scores = score_errors(head, alg, units, rows)
    s, own, delta = (x[:, :m] for x in (scores.s, scores.own, scores.error))
    kept = head.keep(rows)
    keep = np.ones((n, m), bool) if kept is None else kept
    overflow = np.asarray((scores.overflow[:, :m] & keep).any(axis=1))

    # (H1) weights in float64, raised as in (E1)
    full = np.where(keep, s, -np.inf)
    if head.sink is not None:
        full = np.hstack([full, np.full((n, 1), head.sink)])
    top = full.max(axis=1, initial=-np.inf)[:, None]
    top = np.where(np.isfinite(top), top, 0.0)
    w = np.exp(full - top)
    total = w.sum(axis=1)[:, None]
    total = np.where(total > 0, total, 1.0)
    p = np.where(head.blank[:, None], 0.0, (w / total)[:, :m])
    wobble = 2 * np.where(keep, own, 0.0).max(axis=1, initial=0.0)[:, None] + (m + 800) * U
    raised = np.where(wobble > 30, 1.0, p * np.exp(np.minimum(wobble, 30.0)) + 2.0**-1020)
    upper = np.where(keep, np.minimum(raised, 1.0), 0.0)
    slack = 1 + 4 * (max(n, m) + d_v + head.q.shape[1] + 64) * U

    # (H2) relative error of a weight
    delta = np.where(keep, delta, 0.0)
    worst = delta.max(axis=1, initial=0.0)[:, None]
    distance = np.where(keep, top - s, 0.0) + 2 * delta + 2 * worst
    shift = shift_error(alg, units, np.where(keep, s, 0.0), top, distance)
    least = np.ones_like(total)
    if isinstance(alg, Eager) and not alg.shifted:  # the normaliser is in units of 1, not of the largest weight
        least = np.minimum(total * np.exp(np.clip(top - worst, -700.0, 0.0)) / 2, 1.0)
    if isinstance(alg, Eager) and (alg.every_op or not alg.shifted):
        overflow |= forward(head, alg)[1].any(axis=1)
    theta = (1 + units.u_exp) ** (1 + units.blocks) - 1
    stored_steps = units.store.unit if isinstance(alg, Eager) and alg.every_op and units.store is not None else 0.0
    theta = (1 + theta) * (1 + stored_steps) - 1
    relative = np.expm1(np.minimum(delta + shift, 600.0)) * (1 + theta) + theta
    mean = (upper * relative).sum(axis=1)[:, None] * slack
    summed = (1 + growth(u, units.n_norm)) * (1 + stored_steps) - 1
    mean = mean + (1 + mean) * summed + 2 * m * units.tiny_exp / least
    lse = top + np.log(total)
    fine = mean < 0.5
    if isinstance(alg, Flash):
        log_error = mean / (1 - mean) + 2 * units.u_exp * (1 + np.log(total)) + 2 * u * (np.abs(lse) + 1)
        exponent = delta + log_error + u * (np.abs(s - lse) + delta + log_error)
        if alg.base2:
            exponent = exponent + 5 * u * (np.abs(s) + np.abs(lse))
        pi = np.expm1(np.minimum(exponent, 600.0)) * (1 + units.u_exp) + units.u_exp
    else:
        pi = (1 + (relative + mean) / (1 - mean)) * (1 + growth(u, 3)) - 1
    pi = np.where(fine, pi, np.inf) * keep
    small = units.store.tiny if stored_steps and units.store is not None else 0.0
    lost = (units.tiny_exp + small) * 2 / least * keep
    e_p = np.where(keep, np.fmin(upper * pi + lost, 1.0 + lost), 0.0)
    cast_p = _cast(alg.weights, alg.accumulate, upper + e_p, units) * keep

    # (H3) dP and D
    ago, av = np.abs(go), np.abs(head.v)
    dot = dot_error(u, d_v, alg.products)
    e_dp = dot * (ago @ av.T) * slack + 2 * d_v * units.tiny
    e_dp = e_dp + 2 * units.split * (ago.sum(axis=1)[:, None] + av.sum(axis=1))
    dp = go @ head.v.T
    stored = units.store if isinstance(alg, Eager) else None
    if stored is not None:
        e_dp = e_dp + stored.unit * (np.abs(dp) + e_dp) + stored.tiny
        overflow |= ((np.abs(dp) + e_dp > stored.largest) & keep).any(axis=1)
    z = p @ head.v
    d_exact = (go * z).sum(axis=1)[:, None]
    own_d = (m + d_v + 800) * U * ((upper @ av) * ago).sum(axis=1)[:, None] * 4
    if isinstance(alg, Flash):
        sources, flag = forward(head, alg)
        overflow |= flag.any(axis=1)
        error = sources.total
        e_d = (ago * error).sum(axis=1)[:, None] + growth(u, d_v) * (ago * (np.abs(z) + error)).sum(axis=1)[:, None]
        p_used = e_p
    else:
        p_used = e_p + cast_p
        size = np.abs(dp) + e_dp
        e_d = (p_used * size + upper * e_dp).sum(axis=1)[:, None]
        e_d = e_d + growth(u, m + 1) * ((upper + p_used) * size).sum(axis=1)[:, None]
    # |z| above is float64's, within own_d (in the sum over channels) of the exact one
    e_d = e_d * slack + growth(u, d_v) * own_d + (m + d_v) * units.tiny

    # (H4) dS = p (dP − D)
    g = np.abs(dp - d_exact) + own_d
    subtract = u * (g + e_dp + e_d)
    reach = g + e_dp + e_d + subtract
    by_weight = p_used * reach
    by_delta = upper * e_d
    by_sums = upper * (e_dp + subtract) + growth(u, 1) * (upper + p_used) * reach + units.tiny
    slope_error = np.zeros((n, m))
    if head.softcap is not None:
        slope_error = np.minimum(2 * delta / head.softcap + 8 * (u + units.u_exp), 2.0)
        by_weight = by_weight + slope_error * (upper + p_used) * reach
    parts = {"weights": by_weight, "delta": by_delta, "sums": by_sums}
    d_size = upper * g
    whole = d_size + sum(parts.values())
    by_cast = _cast(alg.weights, alg.accumulate, whole, units)
    if stored is not None:
        by_cast = by_cast + stored.unit * whole + stored.tiny
    parts["cast"] = by_cast
    parts = {name: np.where(keep, part, 0.0) for name, part in parts.items()}
    d_size = np.where(keep, d_size, 0.0)
    still = head.means
    for part in (*parts.values(), d_size):
        part[still] = 0.0

    # (H5) products, scale, output
    limit = limits(alg.weights if isinstance(alg, Flash) else (alg.scores or alg.accumulate)).largest
    overflow |= ((d_size + sum(parts.values()) > limit) & keep).any(axis=1)
    side = limits(alg.scale_format) if alg.scale_format is not None else units.acc
    sided = alg.scale_on != "scores"
    root = math.sqrt(tau) if alg.scale_on == "both" else 1.0
    scaled = growth(u, 3) + head.scale.error * 2 + (growth(max(u, side.unit), 3) if sided else 0.0)
    out_u = units.out.unit if units.out.name != units.acc.name else 0.0

    # float64's own error of p and of dS, for the size of the exact result (a softcap's slope is not evaluated)
    doubt = np.expm1(np.minimum(wobble, 30.0))
    own_p = doubt * p + 2.0**-1020
    own_ds = doubt * d_size + upper * (2 * own_d + 2 * (d_v + 4) * U * (ago @ av.T) * slack) + 2.0**-1020 * (1 + g)
    own_p, own_ds = np.where(keep, own_p, 0.0), np.where(keep & ~still[:, None], own_ds, 0.0)
    ds = np.where(keep & ~still[:, None], p * (dp - d_exact), 0.0)
    known = bool((wobble < 30).all()) and head.softcap is None

    def product(
        left: dict[str, F64], size: F64, exact: F64, own: F64, right: F64, factor: float, extra: float
    ) -> GradientBound:
        length, absolute = len(right), np.abs(right)
        pieces = {name: factor * (part @ absolute) * slack for name, part in left.items()}
        magnitude = factor * (size @ absolute) * slack
        reach = magnitude + sum(pieces.values())
        step = (1 + dot_error(u, length + 2, alg.products)) * (1 + extra) - 1
        row = np.asarray((size + sum(left.values())).sum(axis=1)[:, None] * slack)
        below = (length * units.tiny + units.tiny) * (1 + factor)
        below = below + factor * 2 * units.split * (row + absolute.sum(axis=0))
        if extra and sided:  # a scaled side, or the gradient by it, that is stored below the normal range
            below = below + 2 * side.tiny * max(root, factor, 1.0) * (row + 1)
        pieces["sums"] = pieces.get("sums", 0.0) + step * reach + below
        value = factor * (np.abs(exact @ right) + own @ absolute * slack) + 2 * (length + 8) * U * magnitude
        value = np.fmin(value, magnitude) if known else magnitude
        off = sum(pieces.values())
        pieces["output"] = out_u * (value + off) + units.out.tiny
        none = np.zeros_like(magnitude)
        array = np.stack([np.broadcast_to(pieces.get(name, none), none.shape) for name in SOURCES])
        array = np.where(np.isnan(array), np.inf, array) * (1 + 2.0**-40)
        flag = array.sum(axis=0) + value > units.out.largest
        flag |= (reach / (factor or 1.0)) * (1 + step) > units.acc.largest
        if extra and sided:
            flag |= (reach / (root or 1.0)) * (1 + step) > side.largest
        return GradientBound(array, value, flag)

    dq = product(parts, d_size, ds, own_ds, head.k, tau, scaled)
    back = {name: part.T for name, part in parts.items()}
    dk = product(back, d_size.T, ds.T, own_ds.T, head.q, tau, scaled)
    weight_parts = {"weights": e_p.T, "cast": cast_p.T}
    p_kept = np.where(keep, p, 0.0)
    dv = product(weight_parts, np.where(keep, upper, 0.0).T, p_kept.T, own_p.T, go, 1.0, 0.0)
    dq.overflow |= overflow[:, None]
    bad = bool(overflow.any())
    dk.overflow |= bad
    dv.overflow |= bad
    quiet = head.empty
    dq.sources[:, quiet], dq.overflow[quiet] = 0.0, False
    return {"dq": dq, "dk": dk, "dv": dv}


def _cast(name: str, accumulate: str, x: F64, units: Units) -> F64:
    """(C1) for numbers of either sign."""
    if limits(name).name == limits(accumulate).name:
        return np.zeros_like(x)
    return np.asarray(np.minimum(np.maximum(units.u_cast * x, units.tiny_cast), x))
