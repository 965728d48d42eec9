"""What Tier 1 works with: its settings, and what it makes of a head's queries, keys and values before the first tile.

Guarantees: sizes, norms and exactness of the operands are bounded outward, under the labels of compute/enclosure.md.
Does not: compute scores or outputs (compute.tier1 does).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace
from compute.heads import F64, Head, Mask, Scale
from compute.outward import ETA, U, blocked, column_scale, largest, norm_up, up32

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
