"""Tier 1 for gradients: dQ, dK, dV, of bias, scale and sink, with proven radii, in the tile loop of the forward pass.

Guarantees: |exact − mid| ≤ rad entry by entry, the exact gradients being those of Σ grad_output·output, under the
assumptions of compute/enclosure.md, where the labels in brackets are derived. An overflow on the way gives rad = inf.
Does not: refine: rows and columns are bounded by their norms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compute.arrays import Namespace
from compute.block_sums import block_product
from compute.heads import F64, Head
from compute.outward import ETA, FLOOR, UP, U, blocked, growth, largest, norm_up, row_dot, sum_up
from compute.tier1 import Error, Forward, Tile, forward_and
from compute.tier1_operands import Prepared, Settings


@dataclass
class Gradients:
    """Mids and radii of one head; dbias (n, m) only where asked for; dscale and dsink are (mid, rad)."""

    dq: F64
    dq_rad: F64
    dk: F64
    dk_rad: F64
    dv: F64
    dv_rad: F64
    dbias: F64 | None
    dbias_rad: F64 | None
    dscale: tuple[float, float]
    dsink: tuple[float, float] | None


@dataclass
class _Column:
    """(G1) Σ_i x_ij·t_ic for x ≥ 0 known by its column sums and squares, t by its greatest entry and squares."""

    xp: Namespace
    width: int

    def __post_init__(self) -> None:
        self.top, self.squares = self.xp.zeros(self.width), self.xp.zeros(self.width)

    def feed(self, t: F64) -> None:
        self.top = self.xp.maximum(self.top, largest(t, 0))
        self.squares += (t * t).sum(axis=0)

    def bound(self, total: F64, squares: F64, n: int) -> F64:
        raised = 1 + 4 * (n + 8) * U
        xp = self.xp
        by_norm = xp.sqrt(squares * raised + 8 * n * ETA)[:, None] * xp.sqrt(self.squares * raised + 8 * n * ETA)
        return xp.fmin(total[:, None] * raised * self.top, by_norm * (1 + 8 * U)) * UP


@dataclass
class _Sums:
    """What the tiles add up."""

    head: Head
    grad: F64
    want_bias: bool
    dq: F64 = field(init=False)

    def __post_init__(self) -> None:
        head, xp = self.head, self.head.xp
        (n, d), m, d_v = head.q.shape, head.m, head.v.shape[1]
        self.dq, self.dq_rad = xp.zeros((n, d)), xp.zeros((n, d))
        self.dk, self.dv = xp.zeros((m, d)), xp.zeros((m, d_v))
        self.weight, self.weight2 = xp.zeros(m), xp.zeros(m)  # Σ p̂, Σ p̂²
        self.score, self.score2 = xp.zeros(m), xp.zeros(m)  # Σ p̂|ĝ|, Σ (p̂ĝ)²
        self.v_error = _Column(xp, d_v)
        self.k_score = _Column(xp, d)
        self.k_weight = _Column(xp, d)
        self.v_lost, self.k_lost, self.k_dust = xp.zeros(d_v), xp.zeros(d), 0.0
        self.dbias = xp.zeros((n, m)) if self.want_bias else None
        self.dbias_rad = xp.zeros((n, m)) if self.want_bias else None
        self.dscale, self.dscale_rad, self.dscale_size = 0.0, 0.0, 0.0
        self.dsink, self.dsink_rad = 0.0, 0.0


def backward(head: Head, grad: F64, settings: Settings, *, want_bias: bool = False) -> tuple[Forward, Gradients]:
    """Enclosures of output, log-sum-exp and all gradients of one head; grad (n, d_v) is exact as given."""
    xp = head.xp
    sums = _Sums(head, xp.where(head.blank[:, None], 0.0, grad), want_bias)
    shared: dict[str, Any] = {}
    buffer: list[F64] = []

    def visit(p: Prepared, t: Tile, e: Error, w2: F64, z: F64, rad: F64, s: F64) -> None:
        if not shared:
            shared.update(_shared(p))
            buffer.append(xp.empty((min(settings.tile, head.n), p.padded)))
        _tile(sums, shared, p, t, e, (w2, z, rad, s), buffer[0])

    out, p = forward_and(head, settings, visit)
    return out, _finish(sums, p)


def _shared(p: Prepared) -> dict[str, Any]:
    head = p.head
    return {
        "vt": head.xp.ascontiguousarray(head.v.T),
        "nv": float(largest(norm_up(head.v, 1))),
        "k_blocks": p.pad(head.k),
        "k_top": largest(abs(head.k), 0),
        "k_norm": norm_up(head.k, 0),
    }


def _tile(
    sums: _Sums, shared: dict[str, Any], p: Prepared, t: Tile, e: Error, row: tuple[F64, F64, F64, F64], buffer: F64
) -> None:
    w2, z, rad, by_sums = row
    head, settings, xp = p.head, p.settings, p.xp
    m, d_v = head.m, head.v.shape[1]
    rows, tau = t.rows, abs(head.scale.value) * (1 + 4 * U)
    j0, j1 = t.first * p.block, min(m, t.last * p.block)
    go = sums.grad[rows]
    inverse = xp.where(t.blank, 0.0, 1.0 / t.norm)
    w = t.w[:, j0:j1]
    full = buffer[: len(go)]
    g = full[:, j0:j1]
    full[:, : t.first * p.block] = 0.0
    full[:, j1:] = 0.0

    # (G2) relative and absolute error of a weight, p = p̂(1 + π) + ν
    lost = (m + 1) * 2.0**-1022 / t.least
    rest = e.phi + 2 * lost + e.mu * m / t.least
    g_norm = settings.term("N2", p.g_norm)
    pi = settings.term("G2", ((1 + e.phi) * (1 + rest) * g_norm + e.phi + rest * (1 + e.phi)) * UP)
    nu = e.mu * e.outer / t.least * UP

    # (G3) g = go·(v − z)
    size = abs(go)
    n_go = norm_up(go, 1)
    delta = row_dot(go, z)
    e_own = d_v * U * sum_up((size * abs(z)).sum(axis=1), d_v) + 2 * d_v * ETA
    e_delta = (settings.term("G3", sum_up((size * rad).sum(axis=1), d_v)) + e_own) * UP
    e_dot = settings.term("G4", d_v * U * n_go * shared["nv"] * UP) + 2 * d_v * ETA
    xp.matmul(go, shared["vt"][:, j0:j1], out=g)
    g -= delta[:, None]
    e_g = (e_delta + e_dot) * UP
    g_top = (n_go * shared["nv"] + abs(delta) + e_g) * (1 + 8 * U)

    # (G5) values: the tile's rows in any order, tiles one after the other
    acc = _accumulation(p)
    sums.dv[j0:j1] += w.T @ (go * inverse[:, None])
    sums.v_error.feed((pi + settings.term("G5", acc))[:, None] * size * UP)
    sums.v_lost += (nu[:, None] * size).sum(axis=0)
    sums.weight[j0:j1] += inverse @ w
    squares = w * w
    sums.weight2[j0:j1] += (inverse * inverse) @ squares

    # (G6) dS = p g, unnormalised
    xp.multiply(w, g, out=g)
    xp.multiply(g, g, out=squares)
    own2 = sum_up(squares.sum(axis=1), m + 2)
    sums.score2[j0:j1] += (inverse * inverse) @ squares
    xp.absolute(g, out=squares)
    sums.score[j0:j1] += inverse @ squares
    sink = 0.0 if t.sink is None else t.sink * inverse * (abs(delta) + e_delta) * (1 + 4 * U)
    fine = _mean_error(p, t, e, inverse, squares, g_top, e_g, j0, j1, size, by_sums, sink)
    e_delta = xp.fmin(e_delta, fine + e_own) * UP
    e_g = (e_delta + e_dot) * UP
    if sums.dbias is not None and sums.dbias_rad is not None:
        c_bias = (pi + 2 * U * (1 + pi) + 8 * U) * inverse
        sums.dbias[rows, j0:j1] = g * inverse[:, None]
        spread = squares * c_bias[:, None] + w * ((1 + pi) * e_g * inverse * (1 + 4 * U))[:, None]
        sums.dbias_rad[rows, j0:j1] = (spread + (nu * g_top + 4 * ETA)[:, None]) * UP + FLOOR
    c1 = (pi + 2 * U * (1 + pi)) * UP
    if t.slope is not None:
        assert head.softcap is not None
        g *= t.slope
        c1 = c1 + settings.term("G7", 2 * t.delta / head.softcap * UP + 8 * U)
    c2 = (1 + pi) * e_g * UP

    # (G8) queries
    step = settings.term("G8", (1 + blocked(p.block, p.levels)) * (1 + growth(U, 4)) * (1 + head.scale.error * 2) - 1)
    pulled = block_product(full, shared["k_blocks"], t.first, t.last) * inverse[:, None]
    sums.dq[rows] = pulled * head.scale.value
    k_top, k_norm = shared["k_top"], shared["k_norm"]
    by_score = xp.fmin(g_top[:, None] * k_top, (xp.sqrt(own2 + 4 * m * ETA) * inverse)[:, None] * k_norm * (1 + 8 * U))
    by_weight = xp.fmin(k_top, (w2 * inverse)[:, None] * k_norm) * (1 + 8 * U)
    pulled_rad = (c1 + step + 4 * U)[:, None] * by_score + c2[:, None] * by_weight
    pulled_rad = pulled_rad + (m * (nu * g_top + 2 * ETA * inverse))[:, None] * k_top + 2 * m * ETA
    sums.dq_rad[rows] = (tau * pulled_rad) * UP + FLOOR
    q = head.q[rows]
    sums.dscale += (q * pulled).sum()
    sums.dscale_size += (abs(q) * abs(pulled)).sum()
    sums.dscale_rad += (abs(q) * pulled_rad).sum()

    # (G9) keys
    sums.dk[j0:j1] += g.T @ (p.q[rows] * inverse[:, None])
    q_size = abs(p.q[rows]) * (1 + 8 * U + p.kappa_q)
    along = settings.term("G9", (1 + acc) * (1 + 4 * U) * (1 + 2 * p.kappa_q) - 1 + 2 * U)
    sums.k_score.feed((c1 + along)[:, None] * q_size * UP)
    sums.k_weight.feed(c2[:, None] * q_size)
    sums.k_lost += ((nu * g_top)[:, None] * q_size).sum(axis=0)
    sums.k_dust += g_top.sum() * 4 * ETA + len(go) * 4 * ETA * (1 + largest(q_size))

    if t.sink is not None:  # (G10)
        own = t.sink * inverse
        sums.dsink -= (own * delta).sum()
        part = own * (pi + 4 * U) * abs(delta) + own * (1 + pi) * e_delta + nu * (abs(delta) + e_delta)
        sums.dsink_rad += (part + 2 * head.n * U * abs(own * delta) * (1 + 4 * U)).sum() + 8 * len(go) * ETA + FLOOR


def _mean_error(
    p: Prepared,
    t: Tile,
    e: Error,
    inverse: F64,
    score: F64,
    top: F64,
    e_g: F64,
    j0: int,
    j1: int,
    size: F64,
    by_sums: F64,
    sink: F64 | float,
) -> F64:
    """(G11) go·(z − ẑ) through Σ p̂ φ|g|, which does not add up the channels' radii; inf where φ is not small.

    sink: p̂|g| of the sink, whose value is 0 and whose score has no error from a product.
    """
    ones, m = p.xp.ones(j1 - j0), p.head.m
    flat = sum_up(score @ ones, m) * inverse * (1 + 4 * U) + e_g + sink + 2 * m * ETA
    heavy = sum_up(score @ p.nk[j0:j1], m) * inverse * (1 + 4 * U) + (e_g + 2 * m * ETA) * p.nk_top
    eps = p.settings.term("A1", p.eps)
    own = (e.psi * t.a * heavy + (e.psi * t.b + eps) * flat) / (1 - p.eps) + e.mu * m / t.least * top
    change = e.outer * (e.phi + e.mu * m / t.least)
    bound = e.outer * own * (1 + 2 * change) + sum_up((size * by_sums).sum(axis=1), size.shape[1])
    return p.xp.where(change < 0.5, bound * UP, np.inf)


def _accumulation(p: Prepared) -> float:
    """(G5) division twice, a tile's rows in any order, then one addition a tile."""
    count = -(-p.head.n // p.settings.tile)
    return blocked(min(p.settings.tile, p.head.n), count) + growth(U, 2) * (1 + 2.0**-30)


def _finish(sums: _Sums, p: Prepared) -> Gradients:
    head, n = sums.head, sums.head.n
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        v_lost = sum_up(sums.v_lost, n + 4)
        dv_rad = sums.v_error.bound(sums.weight, sums.weight2, n) + v_lost + 4 * n * ETA + FLOOR
        dk_rad = sums.k_score.bound(sums.score, sums.score2, n) + sums.k_weight.bound(sums.weight, sums.weight2, n)
        dk_rad = (dk_rad + sum_up(sums.k_lost, n + 4) + sums.k_dust * 2) * UP + FLOOR
        still = head.means
        sums.dq[still], sums.dq_rad[still] = 0.0, 0.0
        sums.dq[head.blank], sums.dq_rad[head.blank] = 0.0, 0.0
        if sums.dbias is not None and sums.dbias_rad is not None:
            sums.dbias[head.empty], sums.dbias_rad[head.empty] = 0.0, 0.0
        count = head.q.size + 4 * n + 16
        dscale_rad = (float(sums.dscale_rad) + count * U * float(sums.dscale_size)) * (1 + 4 * count * U) * UP
        dscale_rad += 4 * count * ETA + FLOOR  # each product, and each of a radius, may vanish
        out = Gradients(
            sums.dq, sums.dq_rad, sums.dk, dk_rad, sums.dv, dv_rad * UP, sums.dbias, sums.dbias_rad,
            (float(sums.dscale), dscale_rad),
            None if head.sink is None else (float(sums.dsink), float(sums.dsink_rad) * (1 + 8 * n * U) * UP),
        )  # fmt: skip
    for name in ("dq", "dk", "dv", "dbias"):
        _tame(head.xp, getattr(out, name), getattr(out, f"{name}_rad"))
    if not all(map(math.isfinite, out.dscale)):
        out.dscale = (0.0, math.inf)
    if out.dsink is not None and not all(map(math.isfinite, out.dsink)):
        out.dsink = (0.0, math.inf)
    return out


def _tame(xp: Namespace, mid: F64 | None, rad: F64 | None) -> None:
    """An overflow on the way leaves no bound."""
    if mid is None or rad is None:
        return
    bad = ~(xp.isfinite(mid) & xp.isfinite(rad))
    mid[bad], rad[bad] = 0.0, np.inf
