"""Tile shapes and the buffers a thread works in.

Guarantees: shapes depend only on the sizes, number type and library of the call, never on the thread count; at head
sizes up to 256 the buffers of one thread take less than 8 MB on the CPU, at any n and m.
Does not: tune itself to the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from compute.arrays import Array
from compute.meaning import Problem

_SCORES = 1 << 20  # bytes of one tile of scores on the CPU: it stays in a level-2 cache
_SCORES_GPU = 1 << 26


@dataclass(frozen=True)
class Plan:
    """rows, cols: shape of a tile of scores; band: rows whose state is held together while the keys go by."""

    rows: int
    cols: int
    band: int

    def bands(self, n: int) -> Iterator[slice]:
        return _cut(0, n, self.band)

    def blocks(self, band: slice) -> Iterator[slice]:
        """Row blocks of a band."""
        return _cut(band.start, band.stop, self.rows)

    def columns(self, lo: int, hi: int) -> Iterator[slice]:
        """Key tiles that cover lo ≤ j < hi, cut at the same places whatever lo is."""
        for start in range(lo - lo % self.cols, hi, self.cols):
            yield slice(max(start, lo), min(start + self.cols, hi))


def _cut(start: int, stop: int, step: int) -> Iterator[slice]:
    for at in range(start, stop, step):
        yield slice(at, min(at + step, stop))


def plan(problem: Problem) -> Plan:
    """The tile shapes of a call. Few queries (decoding) take longer tiles of keys, as far as their values fit."""
    size = problem.work.itemsize
    cpu = problem.xp is np
    cells = (_SCORES if cpu else _SCORES_GPU) // size
    cols = 512 if cpu else 4096
    rows = cells // cols
    wide = max(problem.q.shape[-1], problem.v.shape[-1])
    if cpu and problem.n < rows:
        fitting = (1 << 21) // (size * (wide + 1))
        cols = max(cols, min(4096, cells // max(problem.n, 64), fitting) // 512 * 512)
    band = 1024 if cpu else rows
    while band > rows and 2 * band * wide * size > (1 << 21):
        band //= 2
    return Plan(rows=rows, cols=cols, band=max(band, rows))


class Buffer:
    """One flat buffer, handed out as a contiguous array of any shape that fits."""

    def __init__(self, xp: object, count: int, dtype: object) -> None:
        self.flat = xp.empty(count, dtype=dtype)  # type: ignore[attr-defined]

    def shaped(self, *shape: int) -> Array:
        count = 1
        for size in shape:
            count *= size
        return self.flat[:count].reshape(shape)
