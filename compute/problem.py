"""The canonical problem of a call: `Problem` holds its arrays, `Part` reads blocks of one head (or of all heads).

Guarantees: visibility, bias, dropout, groups, lengths, corners and RoPE of every algorithm are computed here and
nowhere else; nothing is copied or expanded to (n, m) before a block is asked for (RoPE turns all keys once).
Does not: check arguments (compute.meaning.resolve does, and documents the interface).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from compute import rope as rotary
from compute.arrays import Array, Namespace, work_dtype
from compute.spec import Spec

ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Problem:
    """One call, checked. Arrays keep the caller's shapes, except that a 2-D call gets a head axis of 1."""

    xp: Namespace
    spec: Spec
    q: Array
    k: Array
    v: Array
    flat: bool  # the caller passed 2-D arrays
    groups: int
    mask: Array | None  # bool, as are the rest a broadcast view of shape (*batch, h, n, m)
    additive: tuple[Array, ...]
    bias_shape: tuple[int, ...] | None
    bias_dtype: Any
    sink: Array | None  # (*batch, h)
    sink_shape: tuple[int, ...] | None
    slopes: Array | None  # (*batch, h)
    drop: Array | None
    lengths: np.ndarray[Any, Any] | None  # on the host, (*batch,)

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(self.q.shape[:-3])

    @property
    def h(self) -> int:
        return int(self.q.shape[-3])

    @property
    def n(self) -> int:
        return int(self.q.shape[-2])

    @property
    def m(self) -> int:
        return int(self.k.shape[-2])

    @cached_property
    def work(self) -> Any:
        return work_dtype(self.q.dtype)

    @cached_property
    def turned_keys(self) -> Array:
        """All keys in the work dtype with RoPE applied (the keys themselves without it), made once a call."""
        rope = self.spec.rope
        if rope is None:
            return self.k
        out = self.xp.empty(self.k.shape, dtype=self.work)
        for start in range(0, self.m, 4096):
            block = self.k[..., start : start + 4096, :].astype(self.work, copy=False)
            out[..., start : start + 4096, :] = rotary.rotate(self.xp, block, rope.k_offset + start, rope)
        return out

    def pieces(self, cells: int) -> Iterator[tuple[Any, Problem]]:
        """Problems over parts of the first batch axis, of at most `cells` scores each where one index allows it.

        Each comes with the index of its part in arrays of shape (*batch, …). Without a batch axis there is one.
        """
        count = self.batch[0] if self.batch else 0
        each = math.prod(self.batch[1:]) * self.h * self.n * self.m
        step = max(1, cells // max(each, 1))
        if step >= count:
            yield ..., self
            return
        for start in range(0, count, step):
            at = slice(start, start + step)

            def cut(array: Any, at: slice = at) -> Any:
                return None if array is None else array[at]

            yield (
                at,
                replace(
                    self,
                    q=self.q[at],
                    k=self.k[at],
                    v=self.v[at],
                    mask=cut(self.mask),
                    additive=tuple(a[at] for a in self.additive),
                    sink=cut(self.sink),
                    slopes=cut(self.slopes),
                    drop=cut(self.drop),
                    lengths=cut(self.lengths),
                ),
            )

    def whole(self) -> Part:
        """All heads at once."""
        return Part(self, (), ALL)

    def part(self, batch: tuple[int, ...], head: int) -> Part:
        """One batch index and one query head."""
        return Part(self, batch, head)

    def heads(self) -> Iterator[Part]:
        """Every batch index and query head, in order."""
        for batch in np.ndindex(*self.batch):
            for head in range(self.h):
                yield self.part(batch, head)


@dataclass(frozen=True, eq=False)
class Part:
    """One head of a problem (2-D arrays) or all of them (arrays of the full shape), behind one set of methods."""

    problem: Problem
    batch: tuple[int, ...]
    head: Any  # an int, or ALL

    # -- sizes and scalars ------------------------------------------------------------------------------------------

    @property
    def xp(self) -> Namespace:
        return self.problem.xp

    @property
    def spec(self) -> Spec:
        return self.problem.spec

    @property
    def single(self) -> bool:
        """Whether this is one head."""
        return isinstance(self.head, int)

    @property
    def n(self) -> int:
        return self.problem.n

    @property
    def m(self) -> int:
        return self.problem.m

    @property
    def d_k(self) -> int:
        return int(self.problem.q.shape[-1])

    @property
    def d_v(self) -> int:
        return int(self.problem.v.shape[-1])

    @property
    def dtype(self) -> Any:
        """The work dtype."""
        return self.problem.work

    @cached_property
    def scale(self) -> float:
        return self.spec.scale_value(self.d_k)

    @property
    def softcap(self) -> float | None:
        return self.spec.softcap

    @cached_property
    def length(self) -> Any:
        """Keys that exist: an int for one head; (*batch, 1, 1, 1) for all where lengths differ."""
        lengths = self.problem.lengths
        if lengths is None:
            return self.m
        if self.single:
            return int(lengths[self.batch])
        return self.xp.asarray(lengths)[..., None, None, None]

    @cached_property
    def offset(self) -> Any:
        """Position of query 0 on the keys' axis, for the corner, the window and ALiBi."""
        return self.length - self.n if self.spec.causal == "bottom-right" else int(self.spec.past)

    @cached_property
    def sink(self) -> Any:
        """The sink's logit: a float for one head, (*batch, h, 1, 1) for all; None without a sink."""
        sink = self.problem.sink
        if sink is None:
            return None
        if self.single:
            return float(sink[(*self.batch, self.head)])
        return sink.astype(self.dtype)[..., None, None]

    # -- arrays -----------------------------------------------------------------------------------------------------

    def _of(self, array: Array, head: Any, *axes: slice) -> Array:
        return array[(*self.batch, head, *axes)] if self.single else array[(..., *axes)]

    def _key_value(self, array: Array, cols: slice) -> Array:
        groups = self.problem.groups
        if self.single:
            return self._of(array, self.head // groups, cols, ALL)
        block = array[..., cols, :]
        return block if groups == 1 else self.xp.repeat(block, groups, axis=-3)

    def queries(self, rows: slice = ALL) -> Array:
        block = self._of(self.problem.q, self.head, rows, ALL).astype(self.dtype, copy=False)
        rope = self.spec.rope
        return block if rope is None else rotary.rotate(self.xp, block, rope.q_offset + (rows.start or 0), rope)

    def keys(self, cols: slice = ALL) -> Array:
        return self._key_value(self.problem.turned_keys, cols).astype(self.dtype, copy=False)

    def values(self, cols: slice = ALL) -> Array:
        return self._key_value(self.problem.v, cols).astype(self.dtype, copy=False)

    def grad_queries(self, rows: slice, grad: Array) -> Array:
        rope = self.spec.rope
        return (
            grad if rope is None else rotary.rotate(self.xp, grad, rope.q_offset + (rows.start or 0), rope, back=True)
        )

    def grad_keys(self, cols: slice, grad: Array) -> Array:
        rope = self.spec.rope
        return (
            grad if rope is None else rotary.rotate(self.xp, grad, rope.k_offset + (cols.start or 0), rope, back=True)
        )

    # -- who sees whom ----------------------------------------------------------------------------------------------

    def _ends(self, rows: slice, cols: slice) -> tuple[int, int, int, int]:
        r0, r1, _ = rows.indices(self.n)
        c0, c1, _ = cols.indices(self.m)
        return r0, r1, c0, c1

    def span(self, rows: slice = ALL) -> tuple[int, int]:
        """(lo, hi) such that no key outside is allowed for any of these rows by length, corner or window (one head)."""
        r0, r1, lo, hi = self._ends(rows, ALL)
        hi = min(hi, self.length)
        left, right = self._reach()
        if right is not None:
            hi = min(hi, r1 + self.offset + right)
        if left is not None:
            lo = max(lo, r0 + self.offset - left)
        return (lo, max(lo, hi))

    def _reach(self) -> tuple[int | None, int | None]:
        """How far a query sees left and right of its own position; None for without end."""
        left, right = self.spec.window or (None, None)
        if self.spec.causal != "none":
            right = 0
        return left, right

    def allowed(self, rows: slice = ALL, cols: slice = ALL) -> Array | None:
        xp = self.xp
        r0, r1, c0, c1 = self._ends(rows, cols)
        tests: list[Array] = []
        left, right = self._reach()
        single, length, offset = self.single, self.length, self.offset
        key = xp.arange(c0, c1)[None, :]
        position = xp.arange(r0, r1)[:, None] + offset
        # A block of one head that lies wholly inside a limit needs no test for it.
        if self.problem.lengths is not None and not (single and c1 <= length):
            tests.append(key < length)
        if right is not None and not (single and c1 - 1 <= r0 + offset + right):
            tests.append(key <= position + right)
        if left is not None and not (single and c0 >= r1 - 1 + offset - left):
            tests.append(key >= position - left)
        if self.problem.mask is not None:
            tests.append(self._of(self.problem.mask, self.head, rows, cols))
        tests.extend(self._of(a, self.head, rows, cols) != -math.inf for a in self.problem.additive)
        if not tests:
            return None
        out = tests[0]
        for test in tests[1:]:
            out = out & test
        return out

    def bias(self, rows: slice = ALL, cols: slice = ALL) -> Array | None:
        xp = self.xp
        r0, r1, c0, c1 = self._ends(rows, cols)
        most = self.dtype.type(np.finfo(self.dtype).max)
        terms = []
        for additive in self.problem.additive:
            block = self._of(additive, self.head, rows, cols)
            if block.dtype.itemsize > self.dtype.itemsize:
                block = xp.where(block == -math.inf, block, xp.clip(block, -most, most))
            block = block.astype(self.dtype, copy=False)
            terms.append(xp.where(block == -math.inf, self.dtype.type(0), block))
        slopes = self.problem.slopes
        if slopes is not None:
            slope = slopes[(*self.batch, self.head)] if self.single else slopes[..., None, None]
            gap = xp.arange(c0, c1)[None, :] - (xp.arange(r0, r1)[:, None] + self.offset)
            if self.spec.alibi == "distance":
                gap = -abs(gap)
            terms.append((slope * gap.astype(xp.float64)).astype(self.dtype))
        if len(terms) < 2:
            return terms[0] if terms else None
        # Finite terms never add up to "masked": lowest + lowest stays the lowest number.
        total = terms[0]
        for term in terms[1:]:
            total = xp.clip(total + term, -most, most)
        return total

    def dropout(self, rows: slice = ALL, cols: slice = ALL) -> Array | None:
        drop = self.problem.drop
        if drop is None:
            return None
        block = self._of(drop, self.head, rows, cols)
        if block.dtype == bool:
            assert self.spec.dropout is not None
            return block.astype(self.dtype) / self.dtype.type(1 - self.spec.dropout)
        return block.astype(self.dtype, copy=False)
