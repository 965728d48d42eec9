"""Expected error of the gradients of a declared algorithm: the model of compute.expected carried through the backward.

Guarantees: nothing is proved; within 2 of runs of a Flash backward and of an Eager one (tests/compute/test_bounds.py).
Does not: know the order of a library's sums over rows, or a kernel that adds up gradients in 16 bits.
"""

from __future__ import annotations

import numpy as np

from compute.expected import EXP_SHARE, MEAN_SQUARE, PANEL, expected, sequential, total
from compute.heads import F64, Head
from compute.roundings import Algorithm, Flash
from compute.worst_case import Units, score_errors
from compute.worst_gradients import SOURCES, GradientBound


def gradients(head: Head, alg: Algorithm, grad: F64) -> dict[str, GradientBound]:
    """Root mean squares by source for one head; grad (n, d_v) is exact as given."""
    with np.errstate(all="ignore"):
        return _gradients(head, alg, np.where(head.blank[:, None], 0.0, grad))


def _gradients(head: Head, alg: Algorithm, go: F64) -> dict[str, GradientBound]:
    units = Units.of(alg, head.m)
    c, u, n, m = MEAN_SQUARE, units.u, head.n, head.m
    tau, q, k, v = head.scale.value, head.q, head.k, head.v
    scores = score_errors(head, alg, units, slice(0, n))
    s = scores.s[:, :m]
    kept = head.keep(slice(0, n))
    keep = np.ones((n, m), bool) if kept is None else kept
    full = np.where(keep, s, -np.inf)
    if head.sink is not None:
        full = np.hstack([full, np.full((n, 1), head.sink)])
    top = full.max(axis=1, initial=-np.inf)[:, None]
    top = np.where(np.isfinite(top), top, 0.0)
    w = np.exp(full - top)
    norm = w.sum(axis=1)[:, None]
    p = np.where(head.blank[:, None] | ~keep, 0.0, (w / np.where(norm > 0, norm, 1.0))[:, :m])
    lse = top + np.log(np.where(norm > 0, norm, 1.0))

    # (M5) for a weight that is recomputed: score, shift by the log-sum-exp, exp
    pairs = (q * q) @ (k * k).T * tau * tau
    weight = u * u * (sequential(q.shape[1], pairs, (q @ k.T) * tau) + 2 * s * s + (s - lse) ** 2)
    if units.store is not None:
        weight = weight + units.store.unit**2 * s * s
    weight = np.where(keep, c * weight + (EXP_SHARE * units.u_exp) ** 2, 0.0)
    # the normaliser carries the same errors: a weight errs by its own less the row's mean error
    mean = (p * p * weight).sum(axis=1)[:, None]
    own = weight
    weight = np.where(keep, (1 - p) ** 2 * own + np.maximum(mean - p * p * own, 0.0), 0.0)
    shared = c * u * u * (lse * lse + 1) if isinstance(alg, Flash) else np.zeros_like(lse)
    cast = c * units.u_cast**2 * np.where(p == 1.0, 0.0, 1.0)
    small = np.minimum(units.tiny_cast**2 / 3, p * p)
    cast_p = np.where(units.u_cast * p >= units.tiny_cast, cast * p * p, small) if units.u_cast else np.zeros_like(p)

    dp, z = go @ v.T, p @ v
    g = np.where(keep, dp - (go * z).sum(axis=1)[:, None], 0.0)
    ds = p * g
    if isinstance(alg, Flash):
        stored, _ = expected(head, alg)
        delta = ((go * total(stored)) ** 2).sum(axis=1)[:, None]
        kept_weight = np.zeros_like(p)
    else:
        kept_weight = cast_p  # the stored weights are used everywhere
        delta = (kept_weight * g * g).sum(axis=1)[:, None] + (p * p * own * g * g).sum(axis=1)[:, None]
    dot = c * u * u * (sequential(v.shape[1], (go * go) @ (v * v).T, dp) + g * g)
    if units.store is not None:
        dot = dot + c * units.store.unit**2 * dp * dp
    by_cast = cast * ds * ds
    if units.store is not None:
        by_cast = by_cast + c * units.store.unit**2 * ds * ds
    parts = {
        "weights": (p * p * weight + kept_weight) * g * g,
        "cast": by_cast,
        "sums": p * p * np.where(keep, dot, 0.0),
    }
    out_u = units.out.unit if units.out.name != units.acc.name else 0.0

    def carried(
        pieces: dict[str, F64], squares: F64, right: F64, whole: F64, factor: float, extra: F64
    ) -> GradientBound:
        """Variances through a product: `squares` are those of its left factor, `extra` what a whole row shares."""
        found = {name: factor**2 * (piece @ (right * right)) for name, piece in pieces.items()}
        length = max(squares.shape[1], 1)
        panel = min(length, PANEL)
        walk = c * u * u * (panel + length / panel) / 2 * factor**2 * (squares @ (right * right))
        found["sums"] = found.get("sums", 0.0) + walk + 2 * c * u * u * whole * whole
        found["delta"] = factor**2 * extra
        found["output"] = c * out_u**2 * whole * whole + units.out.tiny**2 / 3
        none = np.zeros_like(whole)
        array = np.sqrt(np.stack([np.maximum(found.get(name, none) + none, 0.0) for name in SOURCES]))
        return GradientBound(array, np.abs(whole), np.zeros(whole.shape, bool))

    along_row = (p @ k) ** 2 * delta + (ds @ k) ** 2 * shared
    dq = carried(parts, ds * ds, k, tau * (ds @ k), tau, along_row)
    along = (p * p * delta).T @ (q * q) + ((ds * ds) * shared).T @ (q * q)
    dk = carried({name: x.T for name, x in parts.items()}, (ds * ds).T, q, tau * (ds.T @ q), tau, along)
    values = {"weights": (p * p * (weight + shared)).T, "cast": cast_p.T}
    dv = carried(values, (p * p).T, go, p.T @ go, 1.0, np.zeros_like(v))
    still = head.empty
    dq.sources[:, still] = 0.0
    return {"dq": dq, "dk": dk, "dv": dv}
