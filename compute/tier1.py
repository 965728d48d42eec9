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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace, home
from compute.heads import F64, Head, Mask, Scale, tiles
from compute.kernels.blas import column_blocks
from compute.outward import (
    ETA,
    FLOOR,
    LEAST_NORMAL,
    U32,
    UP,
    U,
    blocked,
    column_scale,
    exp_up,
    expm1_up,
    growth,
    largest,
    norm_up,
    row_dot,
    sum_up,
    up32,
)

BLOCK = 128  # keys in a block whose inner order BLAS may choose
TILE = 128  # rows that are worked on at once
DEVICE_BLOCK = 512  # on a device a block's partial outputs cost memory traffic
DEVICE_CELLS = 1 << 26  # weights of a tile on a device: it is slow with small pieces
Exp = Callable[..., Any]
Needs = Callable[[F64, F64], Mask]


@dataclass(frozen=True)
class Settings:
    """exp_ulp: E of assumption A1. refine: "all" rows, or those for which the product of absolute values is worth it,
    given (mid, rad) of a tile; None for none. block, tile: sizes of the loops. drop: labels of terms left out, for the
    tests that show that each is needed. shifted_exp: x ← exp(x − row's shift) in one pass, where a kernel does it.
    """

    exp_ulp: float = 1.0
    exp: Exp = np.exp
    refine: Needs | str | None = None
    block: int = BLOCK
    tile: int = TILE
    drop: frozenset[str] = frozenset()
    shifted_exp: Callable[[Array, Array], None] | None = None

    def term(self, label: str, value: Any) -> Any:
        """The value of a labelled term, or 0 if a test has left it out."""
        return 0.0 * (value == value) if label in self.drop else value

    def weigh(self, scores: Array, top: Array) -> None:
        """scores ← exp(scores − top), row by row; the difference is rounded once."""
        if self.shifted_exp is not None:
            self.shifted_exp(scores, top)
            return
        scores -= top[:, None]
        self.exp(scores, out=scores)


def device_settings(settings: Settings, m: int) -> Settings:
    """Loop sizes for a device: a tile of about DEVICE_CELLS weights."""
    return replace(settings, block=DEVICE_BLOCK, tile=max(TILE, DEVICE_CELLS // max(m, 1)))


@dataclass
class Forward:
    """Output (n, d_v) and log-sum-exp (n,) of one head with radii."""

    z: F64
    z_rad: F64
    lse: F64
    lse_rad: F64
    sink_weight: F64 | None = None
    z_low: F64 | None = None


@dataclass(eq=False)
class Prepared:
    """What depends on the keys and values only, or on all queries: made once a head."""

    head: Head
    settings: Settings
    q: F64 = field(init=False)
    kt: F64 = field(init=False)
    blocks: F64 = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        head = self.head
        xp = self.xp = head.xp
        tau: Scale = head.scale
        d, m = head.q.shape[1], head.m
        self.block = min(self.settings.block, max(m, 1))
        self.count = -(-max(m, 1) // self.block)
        self.padded = self.count * self.block
        # (S1) scaled queries: one rounding unless the scale is a power of two, and the scale's own error
        self.q = head.q * tau.value
        power = tau.value == 0 or abs(math.frexp(tau.value)[0]) == 0.5
        self.kappa_q = (tau.error + (0.0 if power else U)) * (1 + 8 * U)
        self.kt = xp.ascontiguousarray(head.k.T)
        self.nq, self.nk = norm_up(self.q, 1), norm_up(head.k, 1)
        self.slope = (d * U + self.kappa_q) * (1 + 8 * U)  # (S2) times |q||k|
        self.dust = ETA * (2 * d + 4) * (1 + float(largest(abs(head.k).sum(axis=1))))  # (S3)
        self.free, self.grid = exact_rows(self)
        # (D3) keys of size 1, by a power of two that the queries take over: no product with a value's size vanishes
        unit = math.frexp(float(largest(self.nk)))[1]
        with np.errstate(over="ignore", under="ignore"):
            self.nk = xp.ldexp(self.nk, xp.full(m, -unit)) + ETA
            self.nq = xp.ldexp(self.nq, xp.full(head.n, unit)) + ETA
        self.nk_top = float(largest(self.nk))
        self.nk_low = float(self.nk.min()) if m else 0.0
        # (D2) values relative to a centre; none with a sink, whose value is 0
        self.centre = xp.zeros(head.v.shape[1]) if head.sink is not None or m == 0 else _middle(xp, head.v)
        away = abs(head.v - self.centre) * (1 + 2 * U)
        self.away_top = largest(away, 0)
        self.away_norm = norm_up(away, 0)
        self.weighted = xp.where(away > 0, away * self.nk[:, None] * (1 + 2 * U) + ETA, 0.0)
        self.weighted_norm = norm_up(self.weighted, 0)
        self.nk_norm = float(norm_up(self.nk[:, None], 0)[0]) if m else 0.0
        high, low = largest(head.v, 0, -np.inf), -largest(-head.v, 0, -np.inf)
        if head.sink is not None or m == 0:
            low, high = xp.minimum(low, 0.0), xp.maximum(high, 0.0)
        self.low, self.high = low, high
        self.top = xp.maximum(abs(low), abs(high))
        with np.errstate(over="ignore"):
            self.range = (high - low) * (1 + 2 * U)
        self.blocks = self.pad(head.v)
        levels = math.ceil(math.log2(self.count)) if self.count > 1 else 0
        self.levels = levels
        self.g_value = blocked(self.block, levels)  # (N1)
        self.g_norm = blocked(self.block, levels + (head.sink is not None))  # (N2)
        self.eps = 2 * self.settings.exp_ulp * U  # (A1)

    def pad(self, x: Any) -> Any:
        """(m, ·) as (blocks, block, ·), zeros behind."""
        missing = self.padded - len(x)
        full = x if not missing else self.xp.concatenate([x, self.xp.zeros((missing, x.shape[1]), dtype=x.dtype)])
        return full.reshape(self.count, self.block, x.shape[1])

    @cached_property
    def absolute(self) -> tuple[Any, F64]:
        """(B1) weighted distances, on the host in float32, rounded up, and the powers of two that scaled their columns.

        A device may flush small float32 numbers or take products in TF32, and its float64 is no slower.
        """
        scale = column_scale(self.weighted)
        scaled = self.weighted * scale
        return self.pad(scaled if self.head.device else up32(scaled)), scale


def _middle(xp: Namespace, v: F64) -> F64:
    """A centre pays where the values of a column spread less than they are far from 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = v.mean(axis=0)
        pays = abs(v - mean).max(axis=0) < abs(mean)
    return xp.where(xp.isfinite(mean) & pays, mean, 0.0)


def exact_rows(p: Prepared) -> tuple[Mask, Mask]:
    """(X1) rows whose scores are exact in float64 in any order of the sum; (X2) rows where ŝ − m is exact too."""
    head, tau, xp = p.head, p.head.scale.value, p.xp
    none = xp.zeros(head.n, dtype=bool)
    if p.kappa_q or tau == 0 or head.softcap is not None or not head.m or not head.q.shape[1]:
        return none, none
    if head.part.problem.additive or head.part.problem.slopes is not None or head.sink is not None:
        return none, none
    some = slice(0, 8)  # a key that uses all its bits rules every row out: tried on a few first
    if (_size(xp, p.nk[some]) - _lowest_bit(xp, head.k[some])).max() > 54:
        return none, none
    low_q, low_k = _lowest_bit(xp, p.q), _lowest_bit(xp, head.k)
    size_q, size_k = _size(xp, p.nq), _size(xp, p.nk)
    finest = low_k.min()
    kept = (p.q / tau == head.q).all(axis=1) & (low_q + finest >= -1074)
    exact = kept & (size_q - low_q + (size_k - low_k).max() <= 53)
    common = exact & (1 + size_q + size_k.max() <= 53 + low_q + finest)
    return exact, common


def _size(xp: Namespace, x: F64) -> F64:
    """log2 x rounded up to eighths, without a library's logarithm; far below every exponent for 0."""
    mantissa, exponent = xp.frexp(x)
    steps = sum((mantissa > 2.0 ** (-i / 8) * (1 - 4 * U)).astype(np.float64) for i in range(1, 8))
    return xp.where(x == 0, -4000.0, exponent - 0.875 + steps / 8)


def _lowest_bit(xp: Namespace, x: F64) -> F64:
    """Exponent of the lowest set bit in each row (2000 for a row of zeros)."""
    mantissa, exponent = xp.frexp(x)
    whole = abs(xp.ldexp(mantissa, 53)).astype(np.int64)
    low = xp.frexp((whole & -whole).astype(np.float64))[1] - 1 + exponent - 53
    return xp.where(x == 0, 2000, low).min(axis=1).astype(np.float64)


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
    total = _tree_sums(xp, full, first, last, p.block)
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


def _tree_sums(xp: Namespace, full: F64, first: int, last: int, block: int) -> F64:
    """Row sums: blocks in any order (a matrix-vector product with ones), blocks joined in a binary tree."""
    if last <= first:
        return xp.zeros(len(full))
    sums = xp.matmul(full.reshape(-1, block), xp.ones(block)).reshape(len(full), -1)[:, first:last]
    return tree(xp.ascontiguousarray(sums.T))


def tree(x: Any) -> Any:
    """Sum over the first axis in a binary tree; overwrites x."""
    while x.shape[0] > 1:
        half = (x.shape[0] + 1) // 2
        x[: x.shape[0] - half] += x[half:]
        x = x[:half]
    return x[0]


def block_product(full: Any, blocks: Any, first: int, last: int) -> Any:
    """(r, padded) times (blocks, block, c): each block's product by BLAS, joined in a tree."""
    xp, block = home(full), blocks.shape[1]
    if last - first <= 0:
        return xp.zeros((len(full), blocks.shape[2]), dtype=full.dtype)
    used = full[:, first * block : last * block]
    if last - first == 1:
        return used @ blocks[first]
    parts = None if xp is np else column_blocks(xp, full, blocks, first, last)
    if parts is not None:
        return tree(parts)
    return tree(xp.matmul(used.reshape(len(full), last - first, block).transpose(1, 0, 2), blocks[first:last]))


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
    lost = (p.head.m + 1) * LEAST_NORMAL / t.least
    total = t.delta + 2 * p.settings.term("A1", p.eps) + p.settings.term("N2", 2 * p.g_norm) + 2 * lost + log_error
    lse = t.top + guess
    rad = (total + U * abs(lse)) * UP
    base = p.head.part.spec.lse_base
    if base != math.e:
        lse = lse / math.log(base)
        rad = (rad / math.log(base) + 4 * U * abs(lse)) * UP
    nothing = t.blank | p.head.empty[t.rows]
    return xp.where(nothing, -np.inf, lse), xp.where(nothing, 0.0, rad)


def forward(head: Head, settings: Settings) -> Forward:
    """Enclosures of output and log-sum-exp of one head."""
    out, _ = forward_and(head, settings, None)
    return out


def forward_and(
    head: Head, settings: Settings, visit: Callable[[Prepared, Tile, Error, F64, F64, F64, F64], None] | None
) -> tuple[Forward, Prepared]:
    """The forward pass; `visit` is called with each tile, its row errors, weight norms, output and radius."""
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
