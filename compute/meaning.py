"""What one call of attention means: arrays, Spec, mask, bias … resolved to one canonical problem a head.

Guarantees: every algorithm of this package reads its masks, biases, corners, groups and lengths here and nowhere
else, so they can't disagree on them; every argument is checked before anything is computed; nothing is copied or
expanded to (n, m) before a tile asks for it.
Does not: compute attention, or look for non-finite numbers in q, k, v.

The interface (used by the algorithms, the certified enclosures and the checks):

    problem = resolve(q, k, v, spec, mask=..., bias=..., sink=..., alibi_slopes=..., dropout_mask=..., key_lengths=...)
    problem.heads()           every (batch index, query head): a Part whose arrays are 2-D
    problem.whole()           one Part for all heads at once, with arrays of shape (..., h, n, m)

    part.n, part.m, part.d_k, part.d_v       sizes; part.length: keys that exist (key_lengths, else m)
    part.queries(rows), part.keys(cols)      (…, n, d_k), (…, m, d_k) in the work dtype, RoPE applied
    part.values(cols)                        (…, m, d_v) in the work dtype
    part.scale, part.softcap, part.sink      score = bias + softcap·tanh(scale·q·k / softcap); sink: None or a logit
    part.allowed(rows, cols)                 bool (…, r, c): this key takes part; None where every key of the block does
    part.bias(rows, cols)                    what is added to the capped score, finite where allowed; None for nothing
    part.dropout(rows, cols)                 multipliers of the normalised weights; None for nothing
    part.span(rows)                          (lo, hi): no key outside lo ≤ j < hi is allowed for any of these rows
    part.grad_queries(rows, g), part.grad_keys(cols, g)    gradients taken back through RoPE

`rows` and `cols` are slices with explicit ends, or ALL. A row with no allowed key and no sink is empty:
spec.empty_row says what it gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Number
from typing import Any

import numpy as np

from compute import rope as rotary
from compute.arrays import FLOATS, Array, Namespace, is_float, namespace, work_dtype
from compute.errors import InputError
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
        single = self.single
        key = position = None
        if not (single and c1 <= self.length) and self.problem.lengths is not None:
            key = xp.arange(c0, c1)[None, :]
            tests.append(key < self.length)
        if right is not None and not (single and c1 - 1 <= r0 + self.offset + right):
            key, position = xp.arange(c0, c1)[None, :], xp.arange(r0, r1)[:, None] + self.offset
            tests.append(key <= position + right)
        if left is not None and not (single and c0 >= r1 - 1 + self.offset - left):
            key, position = xp.arange(c0, c1)[None, :], xp.arange(r0, r1)[:, None] + self.offset
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


# -- checks ---------------------------------------------------------------------------------------------------------


def resolve(
    q: Array,
    k: Array,
    v: Array,
    spec: Spec = Spec(),
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    sink: Array | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Array | None = None,
    key_lengths: Array | None = None,
) -> Problem:
    """Check one call and say what it means.

    q (…, h, n, d_k), k (…, h_kv, m, d_k), v (…, h_kv, m, d_v), or all three 2-D for one head. mask: bool (True takes
    part) or floating (added; −inf means masked), bias: floating; both broadcast against (…, h, n, m). sink and
    alibi_slopes broadcast against (…, h); key_lengths against the batch axes (…). dropout_mask: bool (kept; needs
    spec.dropout) or floating multipliers, broadcast against (…, h, n, m).

    Raises InputError, with what was expected and got.
    """
    if not isinstance(spec, Spec):
        raise InputError(f"spec is a {type(spec).__name__}: expected a compute.Spec, as Spec(causal='top-left')")
    xp = namespace(q=q, k=k, v=v)
    flat = _check_shapes(q, k, v)
    if flat:
        q, k, v = q[None], k[None], v[None]
    groups = _groups(q, k, spec)
    if q.shape[-1] == 0 and spec.scale is None:
        raise InputError("d_k is 0: expected at least 1, or a scale in the Spec (1/sqrt(d_k) has no value)")
    if spec.rope is not None:
        rotary.check(spec.rope, q.shape[-1])
    heads = tuple(q.shape[:-2])
    full = (*heads, q.shape[-2], k.shape[-2])
    mask_bool, mask_added = _mask(xp, mask, full)
    added = [a for a in (mask_added, _bias(xp, bias, full)) if a is not None]
    logit = _per_head(xp, "sink", sink, heads)
    if logit is not None and bool((logit == math.inf).any()):
        raise InputError("sink holds +inf: expected finite logits, or -inf for a head without a sink")
    slopes = _per_head(xp, "alibi_slopes", alibi_slopes, heads)
    if slopes is not None and not bool(xp.isfinite(slopes.astype(xp.float64)).all()):
        raise InputError("alibi_slopes holds NaN or inf: expected finite slopes")
    return Problem(
        xp=xp,
        spec=spec,
        q=q,
        k=k,
        v=v,
        flat=flat,
        groups=groups,
        mask=mask_bool,
        additive=tuple(added),
        bias_shape=None if bias is None else tuple(bias.shape),
        bias_dtype=None if bias is None else bias.dtype,
        sink=logit,
        sink_shape=None if sink is None else tuple(getattr(sink, "shape", ())),
        slopes=slopes,
        drop=_dropout(xp, dropout_mask, full, spec),
        lengths=_lengths(xp, key_lengths, heads[:-1], k.shape[-2]),
    )


def _check_shapes(q: Array, k: Array, v: Array) -> bool:
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not is_float(array.dtype):
            raise InputError(f"{name} has dtype {array.dtype}: expected one of {', '.join(FLOATS)}")
        if array.ndim < 2:
            raise InputError(
                f"{name} has shape {array.shape}: expected (…, heads, length, channels), or 2-D for one head"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise InputError(f"q, k, v have dtypes {q.dtype}, {k.dtype}, {v.dtype}: expected one dtype; cast with astype")
    if not q.ndim == k.ndim == v.ndim:
        raise InputError(f"q, k, v have {q.ndim}, {k.ndim}, {v.ndim} axes: expected the same number")
    if q.shape[-1] != k.shape[-1]:
        raise InputError(f"k has d_k={k.shape[-1]}, q has d_k={q.shape[-1]}: q and k must share their last axis")
    if k.shape[:-1] != v.shape[:-1]:
        raise InputError(f"k has shape {k.shape}, v has {v.shape}: all axes but the last must be the same")
    if q.shape[:-3] != k.shape[:-3]:
        raise InputError(f"q has batch axes {q.shape[:-3]}, k has {k.shape[:-3]}: expected the same")
    return bool(q.ndim == 2)


def _groups(q: Array, k: Array, spec: Spec) -> int:
    h, h_kv = int(q.shape[-3]), int(k.shape[-3])
    if h_kv == 0 or h == 0:
        if h == h_kv:
            return 1
        raise InputError(f"q has {h} heads and k has {h_kv}: expected both or none to be empty")
    if h % h_kv:
        raise InputError(f"q has {h} heads and k has {h_kv}: the query heads must be a multiple of the key-value heads")
    if spec.groups is not None and spec.groups * h_kv != h:
        raise InputError(
            f"Spec has groups={spec.groups}; q has {h} heads and k has {h_kv}: expected groups={h // h_kv}"
        )
    return h // h_kv


def _spread(xp: Namespace, name: str, array: Array, full: tuple[int, ...], axes: str, hint: str = "") -> Array:
    try:
        return xp.broadcast_to(array, full)
    except ValueError:
        raise InputError(
            f"{name} has shape {tuple(array.shape)}: expected one that broadcasts against {axes} = {full}{hint}"
        ) from None


def _mask(xp: Namespace, mask: Array | None, full: tuple[int, ...]) -> tuple[Array | None, Array | None]:
    if mask is None:
        return None, None
    same_library(xp, "mask", mask)
    hint = "; a padding mask (…, m) over keys needs axes of 1 for heads and queries, as mask[:, None, None, :]"
    if mask.dtype == bool:
        return _spread(xp, "mask", mask, full, "(…, h, n, m)", hint), None
    if is_float(mask.dtype):
        return None, _additive(xp, "mask", mask, full)
    raise InputError(
        f"mask has dtype {mask.dtype}, which could mean 1 = keep, 1 = drop, or a number to add: expected bool "
        "(True takes part) or floating (added; -inf means masked); cast with mask.astype(bool)"
    )


def _bias(xp: Namespace, bias: Array | None, full: tuple[int, ...]) -> Array | None:
    if bias is None:
        return None
    same_library(xp, "bias", bias)
    if not is_float(bias.dtype):
        raise InputError(f"bias has dtype {bias.dtype}: expected one of {', '.join(FLOATS)}; a bool belongs into mask=")
    return _additive(xp, "bias", bias, full)


def _additive(xp: Namespace, name: str, array: Array, full: tuple[int, ...]) -> Array:
    view = _spread(xp, name, array, full, "(…, h, n, m)")
    if array.size and bool((array == math.inf).any()):
        raise InputError(
            f"{name} holds +inf: a score of +inf is outside the domain of the softmax; expected finite or -inf"
        )
    return view


def _per_head(xp: Namespace, name: str, value: Array, heads: tuple[int, ...]) -> Array | None:
    if value is None:
        return None
    if isinstance(value, Number):
        value = xp.asarray(value)
        value = value.astype(xp.float64) if value.dtype.kind in "iu" else value
    same_library(xp, name, value)
    if not is_float(value.dtype):
        raise InputError(f"{name} has dtype {value.dtype}: expected a floating dtype")
    return _spread(xp, name, value, heads, "(…, h)")


def _dropout(xp: Namespace, drop: Array | None, full: tuple[int, ...], spec: Spec) -> Array | None:
    if drop is None:
        return None
    same_library(xp, "dropout_mask", drop)
    if drop.dtype == bool:
        if spec.dropout is None:
            raise InputError(
                "dropout_mask is bool and the Spec has no dropout: expected Spec(dropout=p), so that kept weights are "
                "divided by 1 - p, or a floating dropout_mask of multipliers"
            )
    elif not is_float(drop.dtype):
        raise InputError(f"dropout_mask has dtype {drop.dtype}: expected bool (kept) or floating (multipliers)")
    elif spec.dropout is not None:
        raise InputError(
            "dropout_mask is floating (multipliers) and the Spec has dropout too: expected only one of them"
        )
    return _spread(xp, "dropout_mask", drop, full, "(…, h, n, m)")


def _lengths(
    xp: Namespace, lengths: Array, batch: tuple[int, ...], m: int
) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    if lengths is None:
        return None
    if isinstance(lengths, Number):
        lengths = xp.asarray(lengths)
    same_library(xp, "key_lengths", lengths)
    if lengths.dtype.kind not in "iu":
        raise InputError(f"key_lengths has dtype {lengths.dtype}: expected integers")
    view = _spread(xp, "key_lengths", lengths, batch, "the batch axes")
    host = np.asarray(view if xp is np else xp.asnumpy(view)).astype(np.int64)
    if host.size and (host.min() < 0 or host.max() > m):
        raise InputError(f"key_lengths run from {host.min()} to {host.max()}: expected 0 to m = {m}, the keys given")
    return host


def same_library(xp: Namespace, name: str, array: Array) -> None:
    """InputError unless the array belongs to the call's library."""
    if namespace(**{name: array}) is not xp:
        raise InputError(f"{name} and q are arrays of two libraries: expected one; see cupy.asarray and cupy.asnumpy")
