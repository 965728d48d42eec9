"""Attention in tiles: O(n) memory, one pass over the keys, fast on NumPy.

Guarantees: the same meaning as the plain formulas (all masks come from compute.meaning); beside inputs and output a
thread works in its buffers alone (compute.tiles); what a masked key holds is inert, to the bit; results don't depend
on the thread count.
Does not: give the bits of the plain formulas (the order of sums differs), or of another tile shape.

"online" keeps each row's running maximum (Milakov and Gimelshein 2018, section 3; Dao et al. 2022, algorithm 1).
"bounded" holds the shift of a row at 0 where compute.shift proves that safe; the other rows of a block run online in
the same products, so that the choice for one row can't touch another. There exp is exp2 (quicker): the factor log2 e
is folded into safe rows' queries, and multiplies the shifted logits of the others, whose exact scores stay exact.
The sum of the weights comes from a column of ones beside the values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from compute import shift
from compute.arrays import Array, Namespace
from compute.errors import InputError
from compute.fused import exp_of_gap
from compute.meaning import Part, Problem
from compute.plain import mean_value
from compute.select import clean, finite, leaks
from compute.threads import count, run
from compute.tiles import Buffer, Plan, plan

LOG2E = math.log2(math.e)


class Space:
    """What one thread works in."""

    def __init__(self, xp: Namespace, shape: Plan, d_k: int, d_v: int, dtype: object) -> None:
        self.scores = Buffer(xp, shape.rows * shape.cols, dtype)
        self.queries = Buffer(xp, shape.band * d_k, dtype)
        self.sums = Buffer(xp, shape.band * (d_v + 1), dtype)
        self.piece = Buffer(xp, shape.rows * (d_v + 1), dtype)
        self.values = Buffer(xp, shape.cols * (d_v + 1), dtype)


def forward(problem: Problem, *, bounded: bool, threads: int | None = None) -> tuple[Array, Array]:
    """(output (*batch, h, n, d_v), natural log-sum-exp (*batch, h, n)) in the work dtype."""
    xp, shape = problem.xp, plan(problem)
    workers = count(threads) if xp is np else 1
    d_k, d_v = problem.q.shape[-1], problem.v.shape[-1]
    out = xp.empty((*problem.batch, problem.h, problem.n, d_v), dtype=problem.work)
    lse = xp.empty((*problem.batch, problem.h, problem.n), dtype=problem.work)
    problem.turned_keys  # noqa: B018  made once, before threads share it
    extents: dict[tuple[tuple[int, ...], int], list[shift.Extent]] = {}
    tasks: list[Callable[[Space], None]] = []
    with np.errstate(all="ignore"):
        for part in problem.heads():
            tiles = None
            if bounded and may_bound(problem):
                home = (part.batch, part.head // problem.groups)
                if home not in extents:
                    extents[home] = shift.per_tile(part, shape)
                tiles = extents[home]
            at = (*part.batch, part.head)
            tasks += [
                functools.partial(_band, part, band, shape, tiles, out[(*at, band)], lse[(*at, band)])
                for band in shape.bands(problem.n)
            ]
    run(tasks, lambda: Space(xp, shape, d_k, d_v, problem.work), workers)
    return out, lse


def may_bound(problem: Problem) -> bool:
    """Whether τ‖q‖‖k‖ bounds the logits, the keys of a row are a range the bound can follow, and weights only sum."""
    added = problem.additive or problem.slopes is not None or problem.drop is not None
    return not added and problem.mask is None and problem.spec.window is None


def _band(
    part: Part, band: slice, shape: Plan, tiles: list[shift.Extent] | None, out: Array, lse: Array, space: Space
) -> None:
    with np.errstate(all="ignore"):
        state = _State(part, band, shape, tiles, space)
        lo, hi = part.span(band)
        for cols in shape.columns(lo, hi):
            state.take(cols)
        state.finish(out, lse)


class _State:
    """The rows of one band: running shift and sums. Logits are natural, but times log2 e in safe rows."""

    def __init__(self, part: Part, band: slice, shape: Plan, tiles: list[shift.Extent] | None, space: Space) -> None:
        self.part, self.band, self.space, self.xp = part, band, space, part.xp
        self.kind = part.dtype.type
        self.blocks = list(shape.blocks(band))
        self.base2 = tiles is not None
        self.exp, self.log = (self.xp.exp2, self.xp.log2) if self.base2 else (self.xp.exp, self.xp.log)
        rows, d_v = band.stop - band.start, part.d_v
        raw = part.queries(band)
        self.safe = self.xp.zeros((rows, 1), dtype=bool)
        if tiles is not None:
            for block in self.blocks:
                here = self._local(block)
                self.safe[here, 0] = shift.safe_rows(part, block, tiles, shape, raw[here])
        self.all_safe = [bool(self.safe[self._local(block)].all()) for block in self.blocks]
        # What the logits are multiplied by before, and after, the shift is taken off.
        self.lift = self.xp.where(self.safe, self.kind(LOG2E), self.kind(1))
        self.rest = self.xp.where(self.safe, self.kind(1), self.kind(LOG2E))
        self.sums = space.sums.shaped(rows, d_v + 1)
        self.sums[...] = 0
        self.top = self.xp.full((rows, 1), -math.inf, dtype=part.dtype)
        self.met = self.xp.zeros(rows, dtype=bool)  # rows that have seen a key
        self.leaks: Array | None = None
        self._start()
        factor = self.kind(part.scale if part.softcap is None else part.scale / part.softcap)
        self.queries = space.queries.shaped(rows, part.d_k)
        self.xp.multiply(raw, factor * self.lift if part.softcap is None else factor, out=self.queries)

    def _start(self) -> None:
        """The sink is a first key without a value; safe rows hold the shift 0."""
        sink = self.part.sink
        if sink is not None and sink != -math.inf:
            self.top[...] = self.kind(sink)
            self.sums[:, -1] = 1
        if self.base2:
            self.top[self.safe] = 0
            if sink is not None:
                own = self.xp.exp(self.kind(sink))
                self.sums[:, -1] = self.xp.where(self.safe[:, 0], own, self.sums[:, -1])

    def _local(self, rows: slice) -> slice:
        return slice(rows.start - self.band.start, rows.stop - self.band.start)

    def take(self, cols: slice) -> None:
        """Let the band's rows see these keys."""
        xp, part = self.xp, self.part
        d_v = part.d_v
        keys, given = part.keys(cols).T, part.values(cols)
        values = self.space.values.shaped(cols.stop - cols.start, d_v + 1)
        values[:, d_v] = 1
        whole = finite(xp, given)
        values[:, :d_v] = given if whole else clean(xp, given)
        for rows, all_safe in zip(self.blocks, self.all_safe, strict=True):
            lo, hi = part.span(rows)
            if hi <= cols.start or lo >= cols.stop:
                continue
            here = self._local(rows)
            allowed = part.allowed(rows, cols)
            if allowed is None:
                self.met[here] = True
            else:
                self.met[here] |= xp.broadcast_to(allowed, (rows.stop - rows.start, cols.stop - cols.start)).any(
                    axis=-1
                )
            weights = self._scores(rows, cols, here, keys)
            if all_safe:
                self.exp(weights, out=weights)
                if allowed is not None:
                    xp.copyto(weights, self.kind(0), where=~allowed)
            else:
                if allowed is not None:
                    xp.copyto(weights, self.kind(-math.inf), where=~allowed)
                self._shift(weights, here)
            self._add(weights, values, rows, cols, here)
            if not whole:
                self._leak(given, allowed, rows, cols, here)

    def _scores(self, rows: slice, cols: slice, here: slice, keys: Array) -> Array:
        """Logits (times log2 e in safe rows), masks aside."""
        xp, part = self.xp, self.part
        s = self.space.scores.shaped(rows.stop - rows.start, cols.stop - cols.start)
        xp.matmul(self.queries[here], keys, out=s)
        if part.softcap is not None:
            xp.tanh(s, out=s)
            xp.multiply(s, self.kind(part.softcap) * self.lift[here], out=s)
        bias = part.bias(rows, cols)
        if bias is not None:
            s += bias
        return s

    def _shift(self, s: Array, here: slice) -> None:
        """Weights in place of logits, relative to the new maximum (0 for safe rows); sums follow."""
        xp = self.xp
        before = self.top[here]
        top = xp.maximum(before, s.max(axis=-1, keepdims=True))
        if self.base2:
            top[self.safe[here]] = 0
        base = xp.where(top == -math.inf, self.kind(0), top)
        fade = before - base
        rest = self.rest[here] if self.base2 else None
        exp_of_gap(xp, s, base, rest)
        self.sums[here] *= self.exp(fade if rest is None else fade * rest)
        self.top[here] = top

    def _add(self, weights: Array, values: Array, rows: slice, cols: slice, here: slice) -> None:
        xp = self.xp
        drop = self.part.dropout(rows, cols)
        total = None
        if drop is not None:
            total = weights.sum(axis=-1)
            weights *= drop
        piece = self.space.piece.shaped(rows.stop - rows.start, values.shape[1])
        xp.matmul(weights, values, out=piece)
        if total is not None:
            piece[:, -1] = total
        self.sums[here] += piece

    def _leak(self, given: Array, allowed: Array | None, rows: slice, cols: slice, here: slice) -> None:
        """Note which rows see a value that is not finite."""
        xp = self.xp
        seen = xp.ones((rows.stop - rows.start, cols.stop - cols.start), dtype=bool)
        if allowed is not None:
            seen &= allowed
        drop = self.part.dropout(rows, cols)
        if drop is not None:
            seen &= drop != 0
        if self.leaks is None:
            self.leaks = xp.zeros((self.met.shape[0], self.part.d_v), dtype=self.part.dtype)
        self.leaks[here] += leaks(xp, given, seen)

    def finish(self, out: Array, lse: Array) -> None:
        """Write the band's output and log-sum-exp."""
        xp, part = self.xp, self.part
        total = self.sums[:, -1:]
        empty = ~self.met[:, None]
        if part.sink is not None and part.sink != -math.inf:
            empty = xp.zeros_like(empty)
        bare = bool(empty.any())
        if bare:
            total = xp.where(empty, self.kind(1), total)
        xp.divide(self.sums[:, :-1], total, out=out)
        if self.leaks is not None:
            out += self.leaks
        base = xp.where(self.top == -math.inf, self.kind(0), self.top)
        lse[...] = (base + self.log(total) / self.kind(LOG2E if self.base2 else 1))[:, 0]
        if bare:
            self._fill(out, lse, empty)

    def _fill(self, out: Array, lse: Array, empty: Array) -> None:
        part, rule = self.part, self.part.spec.empty_row
        lse[empty[:, 0]] = -math.inf
        if rule == "error":
            row = self.band.start + int(self.xp.argmax(empty[:, 0]))
            where = (*part.batch, part.head, row)
            raise InputError(f"row {where} has no key that takes part, and the Spec says empty_row='error'")
        fill = {"zero": 0.0, "nan": math.nan}.get(rule)
        out[empty[:, 0]] = mean_value(part) if fill is None else fill
