"""Tier 1: attention and its log-sum-exp with proven radii, at the speed of plain float64 matrix products.

Guarantees: |exact − mid| ≤ rad for every output, under the assumptions A1 to A4 of compute/enclosure.md, where every
term below is derived under the label in brackets. Any finite input gives a finite radius for the output (the hull
of the values at worst). The same lines run on NumPy and on CuPy; on a device in larger tiles and blocks, and without
a float32 product.
Does not: check the assumptions (compute.canaries does), or reach radii much below 1e-13 (compute.tier2 does).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compute.arrays import Array, home
from compute.block_sums import block_product, tree_sums
from compute.heads import F64, Head, Mask, tiles
from compute.outward import (
    ETA,
    FLOOR,
    LEAST_NORMAL,
    U32,
    UP,
    U,
    exp_up,
    expm1_up,
    growth,
    largest,
    row_dot,
    sum_up,
)
from compute.tier1_operands import Prepared, Settings


@dataclass
class Forward:
    """Output (n, d_v) and log-sum-exp (n,) of one head with radii."""

    z: F64
    z_rad: F64
    lse: F64
    lse_rad: F64
    sink_weight: F64 | None = None
    z_low: F64 | None = None


@dataclass
class Tile:
    """One tile of rows: computed weights (r, padded), their sums, and the row's error coefficients."""

    rows: slice
    full: F64  # weights, zeros in padded and masked places
    w: F64  # the same without padding
    first: int  # block range in use
    last: int
    top: F64
    norm: F64  # computed normaliser, 1 for blank rows
    least: F64  # at most the exact sum of the computed weights
    a: F64  # delta_j ≤ a·‖k_j‖ + b
    b: F64
    delta: F64  # row bound of delta_j
    sink: F64 | None
    blank: Mask
    slope: F64 | None = None  # of the softcap, for the keys between the first and the last block


def score_tile(p: Prepared, rows: slice, buffer: F64) -> Tile:
    """Scores, weights and normaliser of a tile: (S1) … (S6), (A1), (N2)."""
    head, settings, xp = p.head, p.settings, p.xp
    r, m, nk = rows.stop - rows.start, head.m, p.nk_top
    full, s = buffer[:r], buffer[:r, :m]
    lo, hi = head.span(rows)
    first, last = lo // p.block, max(-(-hi // p.block), lo // p.block)
    j0, j1 = first * p.block, min(m, last * p.block)
    part = s[:, j0:j1]
    nq = p.nq[rows]
    xp.matmul(p.q[rows], p.kt[:, j0:j1], out=part)
    size = nq * nk * (1 + (2 * head.q.shape[1] + 16) * U)  # also of the computed scores
    a = settings.term("S2", xp.where(p.free[rows], 0.0, p.slope * nq))
    b = xp.full(r, p.dust)
    reach = size
    slope = None
    if head.softcap is not None:
        slope, extra = _softcap(p, part)
        b = b + settings.term("S4", extra)
        reach = xp.minimum(size, head.softcap)
    bias, bias_error = head.bias(rows)
    if bias is not None:
        part += bias[:, j0:j1]
        reach = reach + largest(abs(bias), 1)
        b = b + settings.term("S5", U * reach * (1 + 16 * U))
        b = b + (0.0 if bias_error is None else largest(bias_error, 1))
    keep = head.keep(rows)
    if keep is not None:
        xp.copyto(part, -np.inf, where=~keep[:, j0:j1])
    top = largest(part, 1, -np.inf)
    if head.sink is not None:
        top = xp.maximum(top, head.sink)
        reach = xp.maximum(reach, abs(head.sink))
    # (O1) scores that may overflow say nothing: the row becomes one of equal scores with an infinite error
    lost = ~((reach < 2.0**1000) & (size < 2.0**1000)) & ~head.blank[rows]
    if lost.any():
        flat = 0.0 if keep is None else xp.where(keep[:, j0:j1], 0.0, -np.inf)
        part[...] = xp.where(lost[:, None], flat, part)
        top, b = xp.where(lost, 0.0, top), xp.where(lost, np.inf, b)
    blank = head.blank[rows]
    top = xp.where(blank, 0.0, top)
    # (S6) rounding of the shift; beyond 746 the weight is 0 and (U1) answers for it
    b = b + settings.term("S6", xp.where(p.grid[rows], 0.0, U * xp.minimum(746.0, 2 * reach) * (1 + 16 * U)))
    settings.weigh(part, top)
    full[:, : first * p.block] = 0.0
    full[:, j1:] = 0.0
    total = tree_sums(xp, full, first, last, p.block)
    sink = None
    if head.sink is not None:
        sink = settings.exp(xp.where(lost, 0.0, xp.minimum(head.sink - top, 0.0)))
        total = total + sink
    norm = xp.where(blank, 1.0, total)
    least = norm * (1 - 2 * p.g_norm)
    delta = (a * nk + b) * UP
    return Tile(rows, full, s, first, last, top, norm, least, a, b, delta, sink, blank, slope)


def _softcap(p: Prepared, s: F64) -> tuple[F64, F64]:
    """(S4) c·tanh(s/c) by exp alone, in place; returns 1 − tanh² and the error that it adds to a score."""
    cap = p.head.softcap
    assert cap is not None
    t = s / cap
    sign = p.xp.sign(t)
    y = p.settings.exp(-2 * abs(t))
    t = sign * (1.0 - 2.0 * y / (1.0 + y))
    p.xp.multiply(t, cap, out=s)
    return 1.0 - t * t, p.xp.full(len(s), cap * (p.eps / 2 + 8 * U + 4 * LEAST_NORMAL) + 2 * ETA)


def weight_norm(t: Tile, m: int) -> F64:
    """(D1) upper bound of the 2-norm of a row's computed weights."""
    return home(t.w).sqrt(sum_up(row_dot(t.w, t.w), m + 2) + 2 * m * ETA) * (1 + 4 * U)


@dataclass
class Error:
    """Row coefficients that forward and backward share."""

    edelta: F64  # e^delta
    psi: F64  # e^delta: expm1(x) ≤ x·psi for x ≤ delta
    phi: F64  # |w_j/ŵ_j − 1| ≤ phi apart from underflow
    mu: F64  # absolute part of it
    outer: F64  # Σŵ/Σw, at most


def row_error(p: Prepared, t: Tile) -> Error:
    """(W1) relative and absolute error of every weight of a row; (W2) of their sum."""
    eps = p.settings.term("A1", p.xp.full(len(t.delta), p.eps))
    edelta = exp_up(t.delta)
    phi = (expm1_up(t.delta) + eps) / (1 - p.eps) * UP
    mu = p.settings.term("U1", edelta / (1 - p.eps) * LEAST_NORMAL * UP)
    lost = (p.head.m + 1) * LEAST_NORMAL / t.least
    return Error(edelta, edelta, phi, mu, edelta * (1 + p.eps) / (1 - lost) * UP)


def forward_tile(p: Prepared, t: Tile, e: Error, w2: F64) -> tuple[F64, F64, F64]:
    """(mid, rad, its part from sums and division) of the output of a tile: (N1), (D1) … (D5), (Z1), (H1)."""
    head, settings, xp = p.head, p.settings, p.xp
    raw = block_product(t.full, p.blocks, t.first, t.last)
    z = raw / t.norm[:, None]
    share = (w2 / t.least)[:, None] * UP
    spread = xp.minimum(p.away_top, share * p.away_norm) * UP  # (D1) Σ p̂|v − c|
    heavy = xp.minimum(p.away_top * p.nk_top, share * p.weighted_norm) * UP + ETA  # (D3) Σ p̂‖k‖|v − c|
    refine = settings.refine if head.m > p.block else None
    if refine == "all":
        heavy = xp.minimum(heavy, _refined(p, t, None))
    rad, sums = _radius(p, t, e, z, spread, heavy, share[:, 0])
    if callable(refine):
        rows = xp.flatnonzero(refine(z, rad) & ~t.blank)
        if len(rows):
            heavy[rows] = xp.minimum(heavy[rows], _refined(p, t, rows))
            rad, sums = _radius(p, t, e, z, spread, heavy, share[:, 0])
    return z, rad, sums


def _refined(p: Prepared, t: Tile, rows: Array | None) -> F64:
    """(B1) Σ p̂‖k‖|v − c| of some rows (None: all) by one product of non-negative matrices, rounded up."""
    blocks, scale = p.absolute
    some, least = (t.full, t.least) if rows is None or len(rows) == len(t.full) else (t.full[rows], t.least[rows])
    got = block_product(some.astype(blocks.dtype, copy=False), blocks, t.first, t.last).astype(np.float64, copy=False)
    g = growth(U if p.head.device else U32, p.block + p.levels + 2)
    return (got * (1 + 2 * g) + p.head.m * 2.0**-147) / least[:, None] / scale * UP + ETA


def _radius(p: Prepared, t: Tile, e: Error, z: F64, spread: F64, heavy: F64, share: F64) -> tuple[F64, F64]:
    settings, m, xp = p.settings, p.head.m, p.xp
    with np.errstate(over="ignore", invalid="ignore"):
        size = abs(z)
        if p.nk_low > 0:
            spread = xp.minimum(spread, heavy / p.nk_low * UP)
        whole = xp.minimum(spread + abs(p.centre), p.top) * UP  # Σ p̂|v|
        g_value, g_norm = settings.term("N1", p.g_value), settings.term("N2", p.g_norm / (1 - p.g_norm))
        e1 = g_value / (1 - p.g_norm) * whole + (g_norm + settings.term("Z1", U)) * size
        e1 = (e1 + ETA * (m + 4) / t.least[:, None]) / (1 - p.g_norm / (1 - p.g_norm)) * UP
        # (D4) mean distance of the values from z̃, in the mean of the weights
        offset = abs(z - p.centre) * (1 + 2 * U) + e1
        rest = xp.maximum(t.norm * (1 + 2 * p.g_norm) - 1.0, 0.0) / t.least * UP  # (D5) 1 − p_max, as exp(0) = 1
        cap = xp.minimum(0.5, 2 * rest)[:, None] * p.range * UP
        mean = xp.minimum(spread + offset, cap)
        norms = xp.minimum(p.nk_top, share * p.nk_norm)[:, None] * UP
        mean_k = xp.minimum(heavy + norms * offset, cap * p.nk_top)
        eps = settings.term("A1", p.eps)
        inner = (e.psi * t.a)[:, None] * mean_k + (e.psi * t.b + eps)[:, None] * mean
        lost = (e.mu * m / t.least)[:, None] * p.range
        e2 = e.outer[:, None] * (inner / (1 - p.eps) + lost) * UP
        rad = (e1 + e2) * UP + FLOOR
        rad = xp.where(xp.isfinite(rad) & xp.isfinite(z), rad, np.inf)
        hull = xp.maximum(p.high - z, z - p.low) * (1 + 4 * U)  # (H1)
        rad = xp.fmin(rad, xp.where(xp.isfinite(hull), hull, np.inf))
        broken = ~xp.isfinite(z)  # the numerator overflowed: the hull around 0
        if broken.any():
            rad = xp.where(broken, p.top, rad)
            z[broken] = 0.0
        return rad, e1


def lse_tile(p: Prepared, t: Tile, e: Error) -> tuple[F64, F64]:
    """(L1) log-sum-exp in the Spec's base: the logarithm is checked by exp, not assumed."""
    xp = p.xp
    guess = xp.log(t.norm)
    back = t.norm * p.settings.exp(-guess)
    rho = abs(back - 1.0) + 2 * U
    log_error = rho * (1 + 2 * rho) + 2 * p.eps
    far = (p.head.m + 1) * LEAST_NORMAL / t.least
    total = t.delta + 2 * p.settings.term("A1", p.eps) + p.settings.term("N2", 2 * p.g_norm) + 2 * far + log_error
    lse = t.top + guess
    rad = (total + U * abs(lse)) * UP
    base = p.head.part.spec.lse_base
    if base != math.e:
        lse = lse / math.log(base)
        rad = (rad / math.log(base) + 4 * U * abs(lse)) * UP
    nothing, lost = t.blank | p.head.empty[t.rows], ~(xp.isfinite(lse) & xp.isfinite(rad))
    lse, rad = xp.where(lost, 0.0, lse), xp.where(lost, np.inf, rad)
    return xp.where(nothing, -np.inf, lse), xp.where(nothing, 0.0, rad)


def forward(head: Head, settings: Settings) -> Forward:
    """Enclosures of output and log-sum-exp of one head."""
    out, _ = forward_and(head, settings, None)
    return out


def forward_and(
    head: Head, settings: Settings, visit: Callable[[Prepared, Tile, Error, F64, F64, F64, F64], None] | None
) -> tuple[Forward, Prepared]:
    """The forward pass; `visit` is called with each tile, its row errors, weight norms, output and radius."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):  # what overflows becomes a radius of inf
        p = Prepared(head, settings)
    n, d_v = head.n, head.v.shape[1]
    xp = p.xp
    out = Forward(xp.zeros((n, d_v)), xp.zeros((n, d_v)), xp.full(n, -np.inf), xp.zeros(n))
    if head.sink is not None:
        out.sink_weight = xp.zeros(n)
    buffer = xp.empty((min(settings.tile, n), p.padded))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        for rows in tiles(n, settings.tile):
            t = score_tile(p, rows, buffer)
            e = row_error(p, t)
            w2 = weight_norm(t, head.m)
            z, rad, sums = forward_tile(p, t, e, w2)
            z[t.blank], rad[t.blank] = 0.0, 0.0
            out.z[rows], out.z_rad[rows] = z, rad
            out.lse[rows], out.lse_rad[rows] = lse_tile(p, t, e)
            if out.sink_weight is not None and t.sink is not None:
                out.sink_weight[rows] = t.sink
            if visit is not None:
                visit(p, t, e, w2, z, rad, sums)
    return out, p
