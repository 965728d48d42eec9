"""Expected error of a declared algorithm: the root mean square over inputs whose roundings behave as random ones.

Guarantees: nothing is proved. The model (compute/bounds.md, "Expected") was held to runs of compute.emulate and of
NumPy: within 1.5 where the order of sums is the declared one, within 2.5 for a library whose order is not known.
Does not: hold for an adversary, who exceeds it by far (compute.search), or where overflow or coarse stored scores
move the weights by more than a few per cent.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from compute.formats import round_to
from compute.heads import F64, Head, tiles
from compute.roundings import Algorithm, Eager, Flash, limits
from compute.worst_case import Sources, Units, score_errors

# (M1) mean square of a relative rounding error over u², for mantissas that are uniform in the logarithm
MEAN_SQUARE = 1 / (8 * math.log(2))
EXP_SHARE = 0.13  # (M3) root mean square of exp's error over its declared largest; 0.8 u at 6 u for NumPy's float32
PANEL = 192  # (M4) terms that a matrix product adds before it starts a new accumulator, where nothing is declared


def expected(head: Head, alg: Algorithm) -> tuple[Sources, NDArray[np.bool_]]:
    """Root mean square by source, each (n, d_v), and where overflow is predicted. `total` is their quadratic sum."""
    n, d_v = head.n, head.v.shape[1]
    parts = {f.name: np.zeros((n, d_v)) for f in fields(Sources)}
    overflow = np.zeros((n, d_v), bool)
    units = Units.of(alg, head.m)
    with np.errstate(all="ignore"):
        for rows in tiles(n, 128):
            if not head.m:
                continue
            variance, flag = _rows(head, alg, units, rows)
            for name, part in variance.items():
                parts[name][rows] = np.sqrt(np.maximum(part, 0.0))
            overflow[rows] = flag[:, None]
    for part in parts.values():
        part[head.blank] = 0.0
    return Sources(**parts), overflow


def total(sources: Sources) -> F64:
    """Quadratic sum of independent sources."""
    return np.asarray(np.sqrt(sum(getattr(sources, f.name) ** 2 for f in fields(sources))))


def sequential(length: float, squares: F64, whole: F64) -> F64:
    """(M2) Σ of the squared partial sums of `length` terms in order, from Σx² and Σx: a walk with drift."""
    drift = whole * whole / max(length, 1.0)
    return np.asarray(length / 2 * np.maximum(squares - drift, 0.0) + length * length / 3 * drift)


def _rows(head: Head, alg: Algorithm, units: Units, rows: slice) -> tuple[dict[str, F64], NDArray[np.bool_]]:
    c, u, m, d = MEAN_SQUARE, units.u, head.m, head.q.shape[1]
    tau = head.scale.value
    v, q, k = head.v, head.q[rows], head.k
    scores = score_errors(head, alg, units, rows)
    s = scores.s[:, :m]
    kept = head.keep(rows)
    keep = np.ones(s.shape, bool) if kept is None else kept
    top = np.where(keep, s, -np.inf).max(axis=1)
    if head.sink is not None:
        top = np.maximum(top, head.sink)
    top = np.where(np.isfinite(top), top, 0.0)[:, None]
    w = np.where(keep, np.exp(np.minimum(s - top, 0.0)), 0.0)
    norm = w.sum(axis=1)[:, None] + (0.0 if head.sink is None else np.exp(head.sink - top))
    norm = np.where(norm > 0, norm, 1.0)
    p = w / norm
    z = p @ v

    # (M5) scores: the sum over channels, the scale, stores, the shift
    raw = (q @ k.T) * tau
    by_dot = u * u * sequential(d, (q * q) @ (k * k).T * tau * tau, raw)
    if units.products:
        by_dot = by_dot + (units.products**2 / 6) * ((q * q) @ (k * k).T) * tau * tau
    power = abs(math.frexp(tau)[0]) in (0.0, 0.5)
    score = by_dot + (0.0 if power else u * u * raw * raw) + u * u * np.where(keep, top - s, 0.0) ** 2
    if isinstance(alg, Flash) and alg.base2:
        # a maximum times c is rounded, its product with c in the multiply-add is not: every later block's rescaling
        # is off by that residue, the same way each time, unless exp2 of it rounds to 1, as about half of them do
        later = (m - 1) // alg.block - np.arange(m)[None, :] // alg.block
        score = score + (u * top * later / 2) ** 2
    if alg.scale_on != "scores":
        side = limits(alg.scale_format).unit if alg.scale_format is not None else u
        sides = 2 if alg.scale_on == "both" else 1
        score = score + sides * side * side * ((q * q) @ (k * k).T) * tau * tau
    if units.store is not None:
        stores = 1 + (isinstance(alg, Eager) and alg.score_stores == 2)
        score = score + stores * units.store.unit**2 * s * s
        if isinstance(alg, Eager) and alg.every_op:
            score = score + units.store.unit**2 * np.where(keep, top - s, 0.0) ** 2
    score = np.where(keep, c * score, 0.0)
    exp = (EXP_SHARE * units.u_exp) ** 2
    if isinstance(alg, Eager) and alg.every_op and units.store is not None:
        exp = exp + c * units.store.unit**2

    def spread(weight: F64) -> F64:
        """Σ weight (v − z)²."""
        return np.asarray(weight @ (v * v) - 2 * z * (weight @ v) + z * z * weight.sum(axis=1)[:, None])

    out = {"scores": spread(p * p * score), "exp": exp * spread(p * p)}
    moved = (p * raw) @ v - z * (p * raw).sum(axis=1)[:, None]
    out["scores"] = out["scores"] + (_constant_error(alg, tau) * moved) ** 2

    # (M6) cast of the weights; the largest is exactly 1 before the division
    held = w if isinstance(alg, Flash) else p
    unit = norm if isinstance(alg, Flash) else np.ones_like(norm)
    inexact = np.where((held == 1.0) | (held == 0.0), 0.0, 1.0)
    small = np.minimum(units.tiny_cast**2 / 3, held * held)
    relative = c * units.u_cast**2 * held * held
    by_cast = np.where(relative >= c * units.tiny_cast**2, relative, small) * inexact / (unit * unit)
    out["cast"] = by_cast @ (v * v) if units.u_cast else np.zeros_like(z)
    if isinstance(alg, Eager):
        out["cast"] = out["cast"] + c * u * u * ((p * p) @ (v * v))

    # (M7) sums: inside blocks, from block to block, and the normaliser
    length = min(alg.block if isinstance(alg, Flash) else m, PANEL, m)
    out["sums"] = c * u * u * _sums(p, v, z, length)
    norm_unit = 0.6 * u if u <= 2.0**-20 else u * math.sqrt(c * m / 3)
    if isinstance(alg, Eager) and alg.every_op and units.store is not None:
        norm_unit = math.hypot(norm_unit, math.sqrt(c) * units.store.unit)
    out["sums"] = out["sums"] + norm_unit**2 * z * z
    u_out = units.out.unit if units.out.name != units.acc.name else 0.0
    out["output"] = c * (u * u + u_out * u_out) * z * z
    out["underflow"] = np.full_like(z, units.out.tiny**2 / 3)
    row = np.asarray((scores.overflow[:, :m] & keep).any(axis=1))
    return out, row


def _constant_error(alg: Algorithm, tau: float) -> float:
    """(M8) the relative rounding of the scale (times log₂e for base2): one number, the same for all keys."""
    base2 = isinstance(alg, Flash) and alg.base2
    unit = limits(alg.accumulate).unit
    if unit < 2.0**-30 or tau == 0:
        return math.sqrt(MEAN_SQUARE) * unit * (base2 or abs(math.frexp(tau)[0]) not in (0.0, 0.5))
    held = float(round_to(np.array([tau]), alg.accumulate)[0])
    if not base2:
        return held / tau - 1.0
    log2e = math.log2(math.e)
    return float(round_to(np.array([held * log2e]), alg.accumulate)[0]) / (tau * log2e) - 1.0


def _sums(p: F64, v: F64, z: F64, length: int) -> F64:
    """Σ of squared partial sums of p·v, in units of u² and the mean square: blocks, then their running sum."""
    inside, running, squares = np.zeros_like(z), np.zeros_like(z), np.zeros_like(z)
    for j in range(0, len(v), length):
        part, values = p[:, j : j + length], v[j : j + length]
        whole = part @ values
        inside += sequential(part.shape[1], (part * part) @ (values * values), whole)
        if j:
            squares += (running + whole) ** 2
        running = running + whole
    return inside + squares
