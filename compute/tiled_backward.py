"""Gradients of attention in tiles: the weights are made again from the saved log-sum-exp, O(n) memory.

Guarantees: the meaning of the plain gradients; one task a key-value head, so sums over query heads, rows and keys
run in one order whatever the thread count; masked cells are inert; the log-sum-exp as shift can't overflow.
Does not: split one key-value head over threads, or check that a given output and log-sum-exp belong to the inputs.

Source: Dao et al. 2022 (FlashAttention), appendix B.4, algorithm 4; Dao 2023, section 3.1.2.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compute import tiled
from compute.arrays import Array, Namespace
from compute.fused import exp_of_gap, weighted_gap
from compute.meaning import Part, Problem
from compute.select import finite, weigh_signed
from compute.threads import count, run
from compute.tiles import Buffer, Plan, plan


class Space:
    """What one thread works in."""

    def __init__(self, xp: Namespace, shape: Plan, d_k: int, d_v: int, dtype: object) -> None:
        tile = shape.rows * shape.cols
        self.scores, self.grads = Buffer(xp, tile, dtype), Buffer(xp, tile, dtype)
        self.queries = Buffer(xp, shape.band * d_k, dtype)
        self.piece = Buffer(xp, max(shape.rows, shape.cols) * max(d_k, d_v), dtype)


@dataclass(frozen=True)
class Sums:
    """Where gradients are summed up, in the work dtype. dbias has the bias's own shape, padded to all axes.

    dsink and dscale have one entry a query head, in float64; the caller sums them.
    """

    dq: Array
    dk: Array
    dv: Array
    dbias: Array | None
    dsink: Array | None
    dscale: Array


def backward(
    problem: Problem,
    grad_out: Array,
    grad_lse: Array | None,
    out: Array | None,
    lse: Array | None,
    *,
    bounded: bool,
    threads: int | None = None,
) -> Sums:
    """Gradients of Σ grad_out·output + Σ grad_lse·lse (grad_lse in the Spec's base, lse natural).

    out and lse are those of the forward pass; it is run where one is missing.
    """
    xp, work = problem.xp, problem.work
    if out is None or lse is None:
        out, lse = tiled.forward(problem, bounded=bounded, threads=threads)
    heads = (*problem.batch, problem.h)
    padded = None
    if problem.bias_shape is not None:
        full = (*heads, problem.n, problem.m)
        padded = (1,) * (len(full) - len(problem.bias_shape)) + problem.bias_shape
    sums = Sums(
        dq=xp.zeros(problem.q.shape, dtype=work),
        dk=xp.zeros(problem.k.shape, dtype=work),
        dv=xp.zeros(problem.v.shape, dtype=work),
        dbias=None if padded is None else xp.zeros(padded, dtype=work),
        dsink=None if problem.sink is None else xp.zeros(heads, dtype=xp.float64),
        dscale=xp.zeros(heads, dtype=xp.float64),
    )
    problem.turned_keys  # noqa: B018  made once, before threads share it
    shape = plan(problem)
    tasks: list[Callable[[Space], None]] = []
    for batch in np.ndindex(*problem.batch):
        for home in range(problem.k.shape[-3]):
            tasks.append(
                functools.partial(_key_value_head, problem, batch, home, shape, grad_out, grad_lse, out, lse, sums)
            )
    shared = padded is not None and any(p == 1 and f > 1 for p, f in zip(padded, heads, strict=False))
    workers = count(threads) if xp is np and not shared else 1
    run(tasks, lambda: Space(xp, shape, problem.q.shape[-1], problem.v.shape[-1], work), workers)
    return sums


def _key_value_head(
    problem: Problem,
    batch: tuple[int, ...],
    home: int,
    shape: Plan,
    grad_out: Array,
    grad_lse: Array | None,
    out: Array,
    lse: Array,
    sums: Sums,
    space: Space,
) -> None:
    """Everything that flows into one key-value head, and back to the query heads that read it."""
    dk, dv = sums.dk[(*batch, home)], sums.dv[(*batch, home)]
    with np.errstate(all="ignore"):
        for head in range(home * problem.groups, (home + 1) * problem.groups):
            part, at = problem.part(batch, head), (*batch, head)
            there = _Head(part, sums, dk, dv, space, shape)
            for band in shape.bands(problem.n):
                extra = None if grad_lse is None else grad_lse[(*at, band)]
                there.take(band, grad_out[(*at, band)], extra, out[(*at, band)], lse[(*at, band)])
        if problem.spec.rope is not None:
            for cols in shape.columns(0, problem.m):
                dk[cols] = part.grad_keys(cols, dk[cols])


class _Head:
    """Gradients of one query head, band by band."""

    def __init__(self, part: Part, sums: Sums, dk: Array, dv: Array, space: Space, shape: Plan) -> None:
        self.part, self.sums, self.dk, self.dv, self.space, self.shape = part, sums, dk, dv, space, shape
        self.xp, self.kind = part.xp, part.dtype.type
        self.factor = part.scale if part.softcap is None else part.scale / part.softcap

    def take(self, band: slice, grad_out: Array, grad_lse: Array | None, out: Array, lse: Array) -> None:
        """Rows of one band: their dq is finished, dk and dv grow."""
        xp, part, kind = self.xp, self.part, self.kind
        rows = band.stop - band.start
        empty = (lse == -math.inf)[:, None]
        if bool(empty.any()):
            grad_out = self._empty_rows(grad_out, empty)
        delta = (grad_out * out).sum(axis=-1, keepdims=True)
        if grad_lse is not None:
            delta -= grad_lse[:, None] / kind(math.log(part.spec.lse_base))
        delta = xp.where(empty, kind(0), delta)
        # +inf as the shift of an empty row makes each of its weights 0.
        top = xp.where(empty, kind(math.inf), lse[:, None])
        raw = part.queries(band)
        queries = self.space.queries.shaped(rows, part.d_k)
        xp.multiply(raw, kind(self.factor), out=queries)
        dq = self.sums.dq[(*part.batch, part.head, band)]
        lo, hi = part.span(band)
        for cols in self.shape.columns(lo, hi):
            for block in self.shape.blocks(band):
                first, last = part.span(block)
                if last > cols.start and first < cols.stop:
                    here = slice(block.start - band.start, block.stop - band.start)
                    self._tile(block, cols, queries[here], top[here], delta[here], grad_out[here], dq[here])
        at = (*part.batch, part.head)
        pulled = dq if finite(xp, raw) else xp.where(empty, kind(0), dq)
        known = raw if finite(xp, raw) else xp.where(empty, kind(0), raw)
        self.sums.dscale[at] += (known.astype(xp.float64) * pulled).sum()
        if self.sums.dsink is not None:
            sink = xp.exp(kind(part.sink) - lse)[:, None]
            self.sums.dsink[at] -= xp.where(empty, kind(0), sink * delta).sum(dtype=xp.float64)
        dq *= kind(part.scale)
        if part.spec.rope is not None:
            dq[...] = part.grad_queries(band, dq)

    def _empty_rows(self, grad_out: Array, empty: Array) -> Array:
        """Give the values what rows that are their mean send back; the band's gradient without its empty rows."""
        xp, part = self.xp, self.part
        if part.spec.empty_row == "mean" and part.length:
            mean = xp.where(empty, grad_out, self.kind(0)).sum(axis=0) / self.kind(part.length)
            self.dv[: part.length] += mean
        return xp.where(empty, self.kind(0), grad_out)

    def _tile(
        self, rows: slice, cols: slice, queries: Array, top: Array, delta: Array, grad_out: Array, dq: Array
    ) -> None:
        xp, part, kind = self.xp, self.part, self.kind
        keys, values = part.keys(cols), part.values(cols)
        r, c = rows.stop - rows.start, cols.stop - cols.start
        allowed = part.allowed(rows, cols)
        hidden = None if allowed is None else ~xp.broadcast_to(allowed, (r, c))
        p, ds = self.space.scores.shaped(r, c), self.space.grads.shaped(r, c)
        xp.matmul(queries, keys.T, out=p)
        slope = None
        if part.softcap is not None:
            xp.tanh(p, out=p)
            slope = 1 - p * p
            p *= kind(part.softcap)
        bias = part.bias(rows, cols)
        if bias is not None:
            p += bias
        exp_of_gap(xp, p, top, None)
        if hidden is not None:
            xp.copyto(p, kind(0), where=hidden)
        xp.matmul(grad_out, values.T, out=ds)
        drop, used, seen = part.dropout(rows, cols), p, allowed
        if drop is not None:
            used = p * drop
            seen = drop != 0 if allowed is None else allowed & (drop != 0)
            ds *= drop
            xp.copyto(ds, kind(0), where=drop == 0)
        self._add(self.dv[cols], used.T, grad_out, seen, back=True)
        weighted_gap(xp, ds, delta, p)
        if hidden is not None:
            xp.copyto(ds, kind(0), where=hidden)
        if self.sums.dbias is not None:
            self._bias(self.sums.dbias, rows, cols, ds)
        if slope is not None:
            ds *= slope
            if hidden is not None:
                xp.copyto(ds, kind(0), where=hidden)
        self._add(dq, ds, keys, allowed, back=False)
        self._add(self.dk[cols], ds.T, queries, allowed, back=True, factor=part.softcap)

    def _add(
        self, total: Array, a: Array, b: Array, seen: Array | None, *, back: bool, factor: float | None = None
    ) -> None:
        """total += a @ b (· factor), where b's row reaches only what sees it."""
        xp = self.xp
        if finite(xp, b):
            piece = self.space.piece.shaped(a.shape[0], b.shape[1])
            xp.matmul(a, b, out=piece)
        else:
            if seen is not None:
                seen = xp.broadcast_to(seen, a.shape[::-1] if back else a.shape)
            piece = weigh_signed(xp, a, b, seen.T if back and seen is not None else seen)
        if factor is not None:
            piece *= self.kind(factor)
        total += piece

    def _bias(self, dbias: Array, rows: slice, cols: slice, ds: Array) -> None:
        """Add one tile to the gradient of the bias, summed over the axes that were broadcast."""
        lead = dbias.shape[:-2]
        at = tuple(
            0 if size == 1 else place for size, place in zip(lead, (*self.part.batch, self.part.head), strict=True)
        )
        if dbias.shape[-2] == 1:
            ds, rows = ds.sum(axis=0, keepdims=True), slice(0, 1)
        if dbias.shape[-1] == 1:
            ds, cols = ds.sum(axis=1, keepdims=True), slice(0, 1)
        dbias[(*at, rows, cols)] += ds
