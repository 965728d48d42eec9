"""Misreadings of a softmax taken tile by tile: the running maximum, the rescaling, the tiles that causal skips.

Guarantees: each outcome has exactly one thing wrong, in closed form for a tile size: with M_t the row's maximum up to
tile t and T the last tile, a correct pass gives key j of tile t the weight exp(s_j − M_t)·exp(M_t − M_T) (Milakov and
Gimelshein 2018, section 3; Dao et al. 2022, algorithm 1). Does not: judge, or follow the roundings of a pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verify.checking.calls import Array, Call
from verify.checking.outcomes import Wrong, attend, parts, weigh

TILES = (16, 32, 64, 128)
MOST_SCORES = 1 << 17
LARGEST = 600.0  # an exponent whose exp, times values and summed, stays finite


def rescalings(call: Call) -> Iterator[Wrong]:
    """The output or the sum of weights not rescaled, or rescaled by another factor, when the maximum rises."""
    s, _, v, sink = parts(call)
    m = s.shape[-1]
    if sink is not None or s.size > MOST_SCORES:
        return
    for size in TILES:
        if m <= size:
            continue
        tile = np.arange(m) // size
        top, rise = _running(s, size)
        after = np.flip(np.cumprod(np.flip(rise, -1), -1), -1)  # the product of the factors of this tile and later
        ones = np.ones_like(after[..., :1])
        kept = np.concatenate([after[..., 1:], ones], -1)[..., tile]
        fresh = _weights(s, top[..., tile])
        right = fresh * kept
        yield Wrong("tile max", "matches tiles whose output is not rescaled when the running maximum rises",
                    _divided(fresh, right, v))  # fmt: skip
        yield Wrong("tile max", "matches tiles whose sum of weights is not rescaled when the running maximum rises",
                    _divided(right, fresh, v))  # fmt: skip
        yield Wrong("tile max", "matches tiles that are not rescaled at all when the running maximum rises",
                    _divided(fresh, fresh, v))  # fmt: skip
        stale = np.concatenate([ones, ones, rise[..., 1:-1]], -1)
        late = np.flip(np.cumprod(np.flip(stale, -1), -1), -1)
        late = np.concatenate([late[..., 1:], ones], -1)[..., tile] * fresh
        yield Wrong("tile max", "matches tiles rescaled by a stale factor: that of the tile before",
                    _divided(late, late, v))  # fmt: skip
        before = np.concatenate([top[..., :1], top[..., :-1]], -1)
        early = _weights(s, np.where(np.isfinite(before), before, top)[..., tile]) * kept
        yield Wrong("tile max", "matches tiles whose weights are taken against a stale maximum: that before the tile",
                    _divided(early, early, v))  # fmt: skip


def skipped(call: Call) -> Iterator[Wrong]:
    """Causal tiles skipped one key too early: the tile whose first key is the last that a block of queries sees."""
    if call.spec.causal == "none" or call.spec.window is not None:
        return
    s, seen, v, sink = parts(call)
    n, m = s.shape[-2:]
    offset = call.spec.past + (m - n if call.spec.causal == "bottom-right" else 0)
    i, j = np.arange(n)[:, None], np.arange(m)
    for size in TILES:
        last = np.minimum((i // size + 1) * size, n) - 1 + offset
        lost = (j // size * size >= last) & seen
        if lost.any():
            yield Wrong("causal alignment", "matches causal tiles skipped one key too early",
                        attend(np.where(lost, -np.inf, s), v, sink=sink))  # fmt: skip


def _running(s: Array, size: int) -> tuple[Array, Array]:
    """(M_t, exp(M_(t−1) − M_t)) of every tile, along the last axis; the first factor is 0, where nothing was summed."""
    padding = [(0, 0)] * (s.ndim - 1) + [(0, -s.shape[-1] % size)]
    tiles = np.pad(s, padding, constant_values=-np.inf).reshape(*s.shape[:-1], -1, size)
    top = np.maximum.accumulate(tiles.max(-1), axis=-1)
    before = np.concatenate([np.full_like(top[..., :1], -np.inf), top[..., :-1]], -1)
    with np.errstate(all="ignore"):
        rise = np.where(np.isneginf(before), 0.0, np.exp(before - top))
    return top, rise


def _weights(s: Array, top: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(np.isneginf(s) | ~np.isfinite(top), 0.0, np.exp(np.minimum(s - top, LARGEST)))


def _divided(over: Array, under: Array, v: Array) -> Array:
    with np.errstate(all="ignore"):
        total = under.sum(-1, keepdims=True)
        return weigh(over, v) / np.where(total > 0, total, 1)
