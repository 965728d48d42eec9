"""One call of attention, cut into heads of plain float64 matrices: what certificates and bounds work on.

The matrices stay where the call's arrays are, in NumPy or CuPy; `Head.host` is the same head in NumPy.

Guarantees: what takes part, and with which bias, is read from compute.meaning and nowhere else; each Head holds
exactly the numbers of the call (every accepted format fits into float64); keys and values that no row sees are
replaced by 0, so that NaN and inf behind a mask are inert; a row that the Spec makes a mean of all values has
become a row of equal scores.
Does not: compute attention. RoPE and dropout are refused: rotate q and k first, or scale the weights' values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from compute.arrays import Namespace, library, namespace, widened
from compute.errors import InputError
from compute.meaning import Part, Problem, resolve
from compute.spec import Spec

F64: TypeAlias = Any  # a float64 array of NumPy or CuPy
Mask: TypeAlias = Any  # a bool array of NumPy or CuPy
UNIT = 2.0**-53
ROWS = 256


@dataclass(frozen=True)
class Scale:
    """The scale τ as a float64 and a bound on its relative error against the meaning (0: exact)."""

    value: float
    error: float

    @staticmethod
    def of(spec: Spec, d_k: int) -> Scale:
        """1/√d_k (exact for d_k a power of 4), a Fraction, or a float, which is itself."""
        if spec.scale is None:
            value = 1.0 / math.sqrt(d_k)
            return Scale(value, 0.0 if Fraction(value) ** 2 * d_k == 1 else 2 * UNIT * (1 + 4 * UNIT))
        value = float(spec.scale)
        exact = not isinstance(spec.scale, Fraction) or Fraction(value) == spec.scale
        return Scale(value, 0.0 if exact else UNIT)


@dataclass(frozen=True, eq=False)
class Head:
    """One head: q (n, d), k (m, d), v (m, d_v) in float64, its scale, softcap and sink (None: no sink)."""

    q: F64
    k: F64
    v: F64
    scale: Scale
    softcap: float | None
    sink: float | None
    part: Part

    @property
    def xp(self) -> Namespace:
        """The library of the arrays: numpy or cupy."""
        return self.part.xp

    @property
    def n(self) -> int:
        return len(self.q)

    @property
    def m(self) -> int:
        return len(self.k)

    @property
    def device(self) -> bool:
        """Whether the arrays are CuPy's."""
        return self.xp is not np

    @cached_property
    def host(self) -> Head:
        """The same head in NumPy arrays."""
        return self.in_numpy(_in_numpy(self.part.problem)) if self.device else self

    def in_numpy(self, problem: Problem) -> Head:
        """The same head in NumPy arrays; problem: the call's, in NumPy arrays."""
        move = self.xp.asnumpy
        part = replace(self.part, problem=problem)
        return replace(self, q=move(self.q), k=move(self.k), v=move(self.v), part=part)

    @cached_property
    def empty(self) -> Mask:
        """(n,): rows without a key and without a sink, whose output the Spec decides."""
        xp = self.xp
        if self.sink is not None:
            return xp.zeros(self.n, dtype=bool)
        out = xp.full(self.n, self.m == 0)
        for rows in tiles(self.n, self.rows):
            keep = self.part.allowed(rows) if self.m else None
            if keep is not None:
                out[rows] = ~xp.broadcast_to(keep, (rows.stop - rows.start, self.m)).any(axis=1)
        return out

    @property
    def rows(self) -> int:
        """Rows that are looked at together: a device is slow with many small pieces."""
        return max(ROWS, 2**26 // max(self.m, 1)) if self.device else ROWS

    @cached_property
    def means(self) -> Mask:
        """(n,): empty rows that are the mean of the values that exist."""
        if self.part.spec.empty_row != "mean" or int(self.part.length) == 0:
            return self.xp.zeros(self.n, dtype=bool)
        return self.empty

    @cached_property
    def blank(self) -> Mask:
        """(n,): rows without any weight: empty, and not a mean."""
        return self.empty & ~self.means

    def keep(self, rows: slice) -> Mask | None:
        """(r, m): which keys take part, or None for all of them."""
        keep = self.part.allowed(rows)
        if keep is None:
            return None
        full = self.xp.broadcast_to(keep, (rows.stop - rows.start, self.m))
        if self.means[rows].any():
            full = full | (self.means[rows][:, None] & (self.xp.arange(self.m) < self.part.length))
        return full

    def bias(self, rows: slice) -> tuple[F64 | None, F64 | None]:
        """(r, m): what is added to the scores and a bound on its rounding in float64 (None: exact)."""
        problem, at = self.part.problem, (*self.part.batch, self.part.head)
        xp, total = self.xp, self.part.bias(rows)
        if total is None:
            return None, None
        shape = (rows.stop - rows.start, self.m)
        total = xp.where(xp.broadcast_to(self.means[rows][:, None], shape), 0.0, xp.broadcast_to(total, shape))
        total = xp.where(xp.isnan(total), 0.0, total)  # only where no weight is: _head refuses the others
        if len(problem.additive) == 1 and problem.slopes is None:
            return total, None
        size = xp.zeros(shape)
        for additive in problem.additive:
            block = abs(widened(additive[(*at, rows)]))
            size = size + xp.where(xp.isfinite(block), block, 0.0)
        if problem.slopes is not None:
            only = replace(self.part, problem=replace(problem, additive=()))
            size = size + abs(xp.broadcast_to(only.bias(rows), shape))
        return total, 4 * UNIT * size + 2.0**-1074

    def span(self, rows: slice) -> tuple[int, int]:
        """Keys outside lo ≤ j < hi take part in none of these rows."""
        if self.means[rows].any():
            return 0, self.m
        lo, hi = self.part.span(rows)
        lo = min(lo, self.m)
        return lo, min(max(lo, hi), self.m)


@dataclass(frozen=True)
class Heads:
    """All heads of a call. shape: the leading axes of q (batch and heads), () for a 2-D call."""

    problem: Problem
    items: tuple[Head, ...]
    shape: tuple[int, ...]

    def host(self) -> Heads:
        """The same heads in NumPy arrays."""
        if self.problem.xp is np:
            return self
        problem = _in_numpy(self.problem)
        return replace(self, problem=problem, items=tuple(head.in_numpy(problem) for head in self.items))

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Head]:
        return iter(self.items)

    def join(self, parts: list[Any], axes: tuple[int, ...]) -> Any:
        """One array a head, of the shape `axes`, stacked back to the leading axes of the call."""
        xp = self.problem.xp
        return xp.stack(parts).reshape((*self.shape, *axes)) if parts else xp.empty((*self.shape, *axes))


def _in_numpy(problem: Problem) -> Problem:
    """A call of CuPy arrays in NumPy arrays."""
    move = problem.xp.asnumpy
    moved: dict[str, Any] = {
        name: value if value is None else move(value)
        for name in ("q", "k", "v", "mask", "sink", "slopes", "drop")
        for value in (getattr(problem, name),)
    }
    return replace(problem, xp=np, additive=tuple(move(x) for x in problem.additive), **moved)


def tiles(n: int, size: int = ROWS) -> Iterator[slice]:
    """Slices that cut n rows into tiles."""
    for i in range(0, n, size):
        yield slice(i, min(n, i + size))


def exact64(x: Any, name: str) -> Any:
    """x as float64, which holds every accepted format exactly; what is no array is left to compute.meaning.

    Raises InputError for kinds of array that float64 can't hold, DeviceError for one on another device.
    """
    home = library(x)
    if home is None:
        return x
    floating = x.dtype.kind == "f" or x.dtype.name == "bfloat16" or x.dtype.name.startswith("float8")
    if not floating or x.dtype.itemsize > 8:
        raise InputError(f"{name} has dtype {x.dtype}: expected float64, float32, float16, bfloat16 or float8")
    if home == "numpy":
        return np.ascontiguousarray(x, dtype=np.float64)
    namespace(**{name: x})  # on the current device
    return widened(x)


def split(q: Any, k: Any, v: Any, spec: Spec | None = None, **arrays: Any) -> Heads:
    """Cut a call into heads. q (…, h, n, d_k), k (…, h_kv, m, d_k), v (…, h_kv, m, d_v), or 2-D; `arrays`: mask, bias,
    sink, alibi_slopes, key_lengths, as in compute.attention.

    Raises InputError where the call means nothing, where a value that takes part is NaN or infinite, for an empty
    row if the Spec says "error", and for RoPE and dropout.
    """
    spec = Spec() if spec is None else spec
    if spec.rope is not None:
        raise InputError("spec has rope: certificates and tolerances speak of rotated q and k; rotate them first")
    if arrays.get("dropout_mask") is not None:
        raise InputError("dropout_mask is given: certificates and tolerances are of attention without dropout")
    mask, bias, sink = arrays.get("mask"), arrays.get("bias"), arrays.get("sink")
    if mask is not None and library(mask) is not None and mask.dtype.kind == "f":
        mask = exact64(mask, "mask")
    problem = resolve(
        exact64(q, "q"),
        exact64(k, "k"),
        exact64(v, "v"),
        spec,
        mask=mask,
        bias=exact64(bias, "bias"),
        sink=exact64(sink, "sink"),
        alibi_slopes=exact64(arrays.get("alibi_slopes"), "alibi_slopes"),
        key_lengths=arrays.get("key_lengths"),
    )
    scale = Scale.of(spec, problem.q.shape[-1])
    items = tuple(_head(part, scale) for part in problem.heads())
    shape = () if problem.flat else tuple(problem.q.shape[:-2])
    return Heads(problem, items, shape)


def _refuse_nan_bias(head: Head) -> None:
    """InputError for NaN in a bias, or a floating mask, of a pair that takes part."""
    part, xp = head.part, head.xp
    at = (*part.batch, part.head)
    for array in part.problem.additive:
        for rows in tiles(head.n, head.rows):
            bad = xp.isnan(array[(*at, rows)])
            if not bad.any():
                continue
            keep = part.allowed(rows)
            if keep is None or (bad & keep).any():
                raise InputError("bias or mask has NaN for keys that take part: expected finite numbers or -inf")


def _head(part: Part, scale: Scale) -> Head:
    sink = None if part.sink is None or part.sink == -math.inf else float(part.sink)
    xp = part.xp
    head = Head(part.queries(), part.keys(), part.values(), scale, part.softcap, sink, part)
    if part.spec.empty_row == "error" and head.empty.any():
        row = int(xp.argmax(head.empty))
        raise InputError(f"row {row} has no key that takes part, and the Spec says empty_row='error'")
    q, k, v = head.q, head.k, head.v
    if not part.m or not part.n:
        return head
    hidden = part.problem.mask is not None or bool(part.problem.additive) or int(part.length) < part.m
    if hidden or not (xp.isfinite(k).all() and xp.isfinite(v).all()):
        seen = xp.zeros(head.m, dtype=bool)
        for rows in tiles(head.n, head.rows):
            keep = head.keep(rows)
            seen |= True if keep is None else keep.any(axis=0)
        k, v = xp.where(seen[:, None], k, 0.0), xp.where(seen[:, None], v, 0.0)
    if head.empty.any():
        q = xp.where(head.empty[:, None], 0.0, q)
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not xp.isfinite(array).all():
            raise InputError(f"{name} has NaN or infinite values that take part: expected finite numbers")
    if sink is not None and not math.isfinite(sink):
        raise InputError(f"sink is {sink}: expected a finite number, or -inf for none")
    _refuse_nan_bias(head)
    new = replace(head, q=q, k=k, v=v)
    new.__dict__.update({name: head.__dict__[name] for name in ("empty", "means") if name in head.__dict__})
    return new
