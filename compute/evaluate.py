"""Evaluates an operation tree with array operations: every index and every binder has one axis of its own.

Guarantees: the same code runs on NumPy and CuPy; an entry outside an array is an InputError wherever its value
would be used, and inert where a condition or a range leaves it out; sums of plain products are contracted without
expanding them; other sums are cut into pieces so that no temporary has more than about `CELLS` entries a node.
Does not: promise an order of summation (errors of sums follow the any-order bound), or guard exp and log.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace
from compute.errors import InputError
from compute.optree import UNARY, Expr, Tree

CELLS = 1 << 22


class Evaluator:
    """One evaluation: arrays and scalars by name, sizes by name, and the axis of every index in scope.

    Values are arrays of one rank (axes of size 1 where an index doesn't occur) or Python numbers.
    """

    def __init__(
        self,
        xp: Namespace,
        tree: Tree,
        arrays: dict[str, Array],
        scalars: dict[str, Any],
        sizes: dict[str, int],
        dtype: Any,
    ):
        self.xp = xp
        self.tree = tree
        self.arrays = arrays
        self.scalars = scalars
        self.sizes = sizes
        self.kind: Callable[[Any], Any] = np.dtype(dtype).type
        self.dtype = dtype
        self.rank = len(tree.output) + tree.depth

    def run(self) -> Array:
        """The output array, with its axes in order (0-d for a scalar)."""
        xp = self.xp
        indices: dict[str, Array] = {}
        shape = []
        for axis, (name, length) in enumerate(self.tree.output):
            count = self.sizes[length] if isinstance(length, str) else self._scalar_integer(length, "an output size")
            indices[name] = self._line(0, count, axis)
            shape.append(count)
        value = self.value(self.tree.body, indices, None, len(shape))
        value = xp.asarray(value, dtype=self.dtype)
        if value.ndim:
            value = value.reshape(value.shape[: len(shape)])
        return xp.ascontiguousarray(xp.broadcast_to(value, tuple(shape))) if shape else value

    # -- values -----------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, indices: dict[str, Array], live: Array | None, axis: int) -> Any:
        """A floating value. live: where it will be used (None: everywhere); axis: the next free axis."""
        op, args = expr[0], expr[1:]
        if op in ("num", "const", "sym"):
            return self._leaf(op, args, indices)
        if op == "at":
            return self._entry(args[0], args[1], indices, live)
        if op in ("sum", "product"):
            return self._reduce(op, args, indices, live, axis)
        if op == "where":
            return self._where(args, indices, live, axis)
        if op == "delta":
            return self.xp.where(self._compare("eq", args, indices, live, axis), self.kind(1), self.kind(0))
        operands = [self.value(a, indices, live, axis) for a in args]
        if op in UNARY:
            return self._unary(op, operands[0])
        if op == "pow":
            return self._power(operands[0], args[1], operands[1])
        combine = {
            "add": lambda a, b: a + b,
            "mul": lambda a, b: a * b,
            "max": self.xp.maximum,
            "min": self.xp.minimum,
        }[op]
        out = operands[0]
        for operand in operands[1:]:
            out = combine(out, operand)
        return out

    def _leaf(self, op: str, args: Expr, indices: dict[str, Array]) -> Any:
        if op == "num":
            return self._number(Fraction(args[0], args[1]))
        if op == "const":
            return self.kind({"pi": math.pi, "e": math.e, "euler_gamma": float(np.euler_gamma)}[args[0]])
        name = args[0]
        if name in indices:
            return indices[name].astype(self.dtype)
        return self.kind(self.sizes[name] if name in self.sizes else self.scalars[name])

    def _number(self, number: Fraction) -> Any:
        try:
            return self.kind(float(number))
        except OverflowError:
            return self.kind(math.copysign(math.inf, number))

    def _entry(self, name: str, where: Expr, indices: dict[str, Array], live: Array | None) -> Array:
        xp, array = self.xp, self.arrays[name]
        places = []
        for length, place in zip(array.shape, where, strict=True):
            at = self._integer(place, indices)
            out = (xp.asarray(at) < 0) | (xp.asarray(at) >= length)
            used = out if live is None else out & live
            if bool(used.any()):
                raise InputError(f"{name} is read outside its axis of {length} entries, at {place!r}")
            places.append(xp.clip(at, 0, max(length - 1, 0)))
        if array.size == 0:
            return xp.zeros((1,) * self.rank, dtype=self.dtype)
        return array[tuple(places)].astype(self.dtype, copy=False)

    def _unary(self, op: str, x: Any) -> Any:
        xp = self.xp
        if op in ("exp", "log", "sqrt", "tanh", "abs"):
            return getattr(xp, op)(x)
        special = importlib.import_module("scipy.special" if xp is np else "cupyx.scipy.special")
        return getattr(special, {"loggamma": "gammaln"}.get(op, op))(x)

    def _power(self, base: Any, exponent: Expr, value: Any) -> Any:
        """Whole exponents multiply (0⁰ = 1, a negative base is fine), ±1/2 take a root, others use the library."""
        if exponent[0] == "num":
            power = Fraction(exponent[1], exponent[2])
            if power == Fraction(1, 2):
                return self.xp.sqrt(base)
            if power == Fraction(-1, 2):
                return self.kind(1) / self.xp.sqrt(base)
            if power == -1:
                return self.kind(1) / base
            if power == 2:
                return base * base
        return self.xp.power(base, value)

    def _where(self, args: Expr, indices: dict[str, Array], live: Array | None, axis: int) -> Any:
        cond = self.condition(args[0], indices, live, axis)
        here = cond if live is None else cond & live
        there = ~cond if live is None else ~cond & live
        return self.xp.where(cond, self.value(args[1], indices, here, axis), self.value(args[2], indices, there, axis))

    # -- conditions -------------------------------------------------------------------------------------------------

    def condition(self, cond: Expr, indices: dict[str, Array], live: Array | None, axis: int) -> Array:
        op, args = cond[0], cond[1:]
        if op == "not":
            return ~self.condition(args[0], indices, live, axis)
        if op in ("and", "or"):
            out = self.condition(args[0], indices, live, axis)
            for arg in args[1:]:
                other = self.condition(arg, indices, live, axis)
                out = out & other if op == "and" else out | other
            return out
        return self._compare(op, args, indices, live, axis)

    def _compare(self, op: str, args: Expr, indices: dict[str, Array], live: Array | None, axis: int) -> Array:
        a, b = (self._integer(x, indices, strict=False) for x in args)
        if a is None or b is None:
            a, b = (self.value(x, indices, live, axis) for x in args)
        a = self.xp.asarray(a)
        return a < b if op == "lt" else a <= b if op == "le" else a == b

    # -- integers ---------------------------------------------------------------------------------------------------

    def _integer(self, expr: Expr, indices: dict[str, Array], *, strict: bool = True) -> Any:
        """The exact integer value (a Python int or int64 array); None (an InputError if strict) where it isn't one."""
        op, args = expr[0], expr[1:]
        out: Any = None
        if op == "num":
            number = Fraction(args[0], args[1])
            out = int(number) if number.denominator == 1 else None
        elif op == "sym":
            name = args[0]
            out = indices[name] if name in indices else self.sizes.get(name)
            if out is None and float(self.scalars.get(name, 0.5)).is_integer():
                out = int(self.scalars[name])
        elif op in ("add", "mul", "max", "min"):
            out = self._combine(op, [self._integer(a, indices, strict=strict) for a in args])
        if out is None and strict:
            raise InputError(f"{expr!r} is used as an index or an end of a range: expected an integer")
        return out

    def _combine(self, op: str, parts: list[Any]) -> Any:
        if any(p is None for p in parts):
            return None
        out = parts[0]
        for part in parts[1:]:
            if op == "add":
                out = out + part
            elif op == "mul":
                out = out * part
            else:
                out = self.xp.maximum(out, part) if op == "max" else self.xp.minimum(out, part)
        return out

    def _scalar_integer(self, expr: Expr, what: str) -> int:
        value = self._integer(expr, {})
        if int(value) < 0:
            raise InputError(f"{what} is {int(value)}: expected at least 0")
        return int(value)

    # -- sums and products ------------------------------------------------------------------------------------------

    def _line(self, start: int, stop: int, axis: int) -> Array:
        shape = [1] * self.rank
        shape[axis] = max(stop - start, 0)
        return self.xp.arange(start, max(stop, start), dtype=np.int64).reshape(shape)

    def _reduce(self, op: str, args: Expr, indices: dict[str, Array], live: Array | None, axis: int) -> Any:
        xp = self.xp
        binder, lo, hi = args[0], self._integer(args[1], indices), self._integer(args[2], indices)
        neutral = self.kind(0 if op == "sum" else 1)
        fixed = isinstance(lo, int) and isinstance(hi, int)
        first, last = _extreme(xp, lo, live, min), _extreme(xp, hi, live, max)
        if first is None or last is None or last < first:
            return neutral
        if op == "sum" and fixed and live is None:
            line = self._line(first, last + 1, axis)
            contracted = self._contract(args[3], {**indices, binder: line}, axis, last + 1 - first)
            if contracted is not None:
                return contracted
        outer = self._cells(args[3], {k: x for k, x in indices.items() if k != binder})
        step = max(1, CELLS // max(outer, 1))
        total: Any = None
        for start in range(first, last + 1, step):
            line = self._line(start, min(start + step, last + 1), axis)
            inside = None if fixed else (line >= lo) & (line <= hi)
            used = inside if live is None else live if inside is None else inside & live
            piece = self.value(args[3], {**indices, binder: line}, used, axis + 1)
            piece = xp.asarray(piece, dtype=self.dtype)
            if inside is not None:
                piece = xp.where(inside, piece, neutral)
            piece = self._fold(op, piece, axis, line.size)
            total = piece if total is None else total + piece if op == "sum" else total * piece
        return total

    def _cells(self, expr: Expr, indices: dict[str, Array]) -> int:
        """Entries of the array that the expression expands to."""
        names = free_names(expr)
        return math.prod(x.size for name, x in indices.items() if name in names)

    def _fold(self, op: str, piece: Array, axis: int, count: int) -> Array:
        if piece.ndim and piece.shape[axis] == count and count != 1:
            return piece.sum(axis=axis, keepdims=True) if op == "sum" else piece.prod(axis=axis, keepdims=True)
        return piece * self.kind(count) if op == "sum" else piece**count

    def _contract(self, body: Expr, indices: dict[str, Array], axis: int, count: int) -> Any:
        """Σ over `axis` of a product, by einsum over the axes that occur; None where that would not pay or fit."""
        factors = list(body[1:])
        if body[0] != "mul" or max(self._cells(f, indices) for f in factors) > CELLS:
            return None
        values = [self.xp.asarray(self.value(f, indices, None, axis + 1), dtype=self.dtype) for f in factors]
        carry = [x for x in values if x.ndim and x.shape[axis] == count and count > 1]
        rest = [x for x in values if not (x.ndim and x.shape[axis] == count and count > 1)]
        out: Any = None
        if not carry:
            out = self.kind(count)
        elif len(carry) == 1:
            out = carry[0].sum(axis=axis, keepdims=True)
        else:
            out = self._einsum(carry, axis)
        for x in rest:
            out = out * x
        return out

    def _einsum(self, carry: list[Array], axis: int) -> Array:
        kept = sorted({a for x in carry for a in range(x.ndim) if x.shape[a] != 1} - {axis})
        operands: list[Any] = []
        for x in carry:
            axes = [a for a in range(x.ndim) if x.shape[a] != 1]
            operands += [x.reshape([x.shape[a] for a in axes]), axes]
        out = self.xp.einsum(*operands, kept, optimize=True)
        shape = [1] * self.rank
        for a, size in zip(kept, out.shape, strict=True):
            shape[a] = size
        return out.reshape(shape)


def _extreme(xp: Namespace, end: Any, live: Array | None, pick: Callable[..., int]) -> int | None:
    """The smallest or largest end of a range over the cells that are used; None where no cell is."""
    if isinstance(end, int):
        return end
    if live is not None:
        end, live = xp.broadcast_arrays(end, live)
        end = end[live]
    return int(end.min() if pick is min else end.max()) if end.size else None


def free_names(expr: Any) -> frozenset[str]:
    """Every name that occurs as a symbol, except where a sum or product binds it."""
    if isinstance(expr, str) or not isinstance(expr, Sequence) or not expr:
        return frozenset()
    if expr[0] == "sym":
        return frozenset([expr[1]])
    inside = frozenset[str]().union(*(free_names(a) for a in expr[1:]))
    if expr[0] in ("sum", "product"):
        ends = free_names(expr[2]) | free_names(expr[3])
        return ends | (free_names(expr[4]) - {expr[1]})
    if expr[0] == "at":
        return frozenset[str]().union(*(free_names(a) for a in expr[2]))
    return inside
