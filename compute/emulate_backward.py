"""Runs the backward pass of a declared low-precision algorithm on a CPU, rounding by rounding.

Guarantees: each rounding that the declaration names happens where compute/bounds.md, "Gradients", says, and no other
but those of `accumulate`. Flash: weights recomputed from the log-sum-exp that the forward pass stored, D from its
stored output; P and dS are cast to `weights` before their products, tile by tile. Eager: the stored weights, dP and dS
stored in `scores`, and where the scale is on q (or q and k), their gradients stored in scale_format first.
Does not: reproduce one device's bits, or give gradients of bias, sink, slopes and scale.

Sources: Dao et al. 2022, algorithm 4 (Flash, with the scale and the stored log-sum-exp of Dao 2023, algorithm 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from compute.arrays import Array
from compute.checks import floating
from compute.emulate import HeadRun, declared, stored
from compute.errors import InputError
from compute.formats import in_order
from compute.meaning import ALL, Part, resolve, same_library
from compute.plain import mean_gradient
from compute.roundings import Eager, Flash
from compute.select import clean, finite
from compute.spec import Spec


@dataclass(frozen=True)
class EmulatedGradients:
    """dq, dk, dv in the shapes of q, k, v: float64 arrays that hold numbers of the algorithm's output format."""

    dq: Array
    dk: Array
    dv: Array


def emulated_attention_backward(
    grad_output: Array,
    q: Array,
    k: Array,
    v: Array,
    spec: Spec = Spec(),
    algorithm: Flash | Eager | None = None,
    *,
    storage: str | None = None,
    mask: Array | None = None,
    bias: Array | None = None,
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Array | None = None,
    key_lengths: Array | int | None = None,
) -> EmulatedGradients:
    """Gradients of Σ grad_output·output as `algorithm` would round them; the forward pass runs first.

    q, k, v, grad_output are float32 or float64 arrays, grad_output of the output's shape. storage: format that all four
    are rounded to first. Other arguments as in compute.emulated_attention. Heads that share keys add up their dk and dv
    in `accumulate`, each head's rounded to the output's format before and the sum after.

    Raises InputError for arguments that don't fit.

    >>> import numpy as np
    >>> from compute.roundings import Flash
    >>> q, k, v, g = np.ones((1, 1)), np.zeros((3, 1)), np.ones((3, 1)), np.ones((1, 1))
    >>> emulated_attention_backward(g, q, k, v, algorithm=Flash(weights="bf16", output="bf16")).dv[:, 0].tolist()
    [0.333984375, 0.333984375, 0.333984375]
    """
    q, k, v, algorithm = declared(q, k, v, algorithm, storage)
    problem = resolve(
        q,
        k,
        v,
        spec,
        mask=mask,
        bias=bias,
        sink=sink,
        alibi_slopes=alibi_slopes,
        dropout_mask=dropout_mask,
        key_lengths=key_lengths,
    )
    floating(grad_output=grad_output)
    same_library(problem.xp, "grad_output", grad_output)
    shape = (*q.shape[:-1], v.shape[-1])
    if tuple(grad_output.shape) != shape:
        raise InputError(f"grad_output has shape {tuple(grad_output.shape)}: expected the output's, {shape}")
    grad = grad_output if storage is None else stored(grad_output, storage)
    grad = grad[None] if problem.flat else grad
    xp, shared = problem.xp, (*problem.batch, problem.h // problem.groups if problem.groups else 0)
    dq = xp.empty((*problem.batch, problem.h, problem.n, q.shape[-1]))
    dk, dv = (xp.zeros((*shared, problem.m, x.shape[-1])) for x in (k, v))
    with np.errstate(all="ignore"):
        for part in problem.heads():
            run = _Backward(part, algorithm)
            at = (*part.batch, part.head)
            dq[at], *both = run.backward(grad[at])
            to = (*part.batch, part.head // problem.groups)
            for total, new in zip((dk, dv), both, strict=True):
                total[to] = new if part.head % problem.groups == 0 else run.keep(total[to].astype(run.dtype) + new)
        if problem.groups > 1:
            dk, dv = (run.store(x.astype(run.dtype), algorithm.output).astype(np.float64) for x in (dk, dv))
    return EmulatedGradients(*((x[0] for x in (dq, dk, dv)) if problem.flat else (dq, dk, dv)))


class _Backward(HeadRun):
    """The backward pass of one head."""

    def __init__(self, part: Part, algorithm: Flash | Eager) -> None:
        super().__init__(part, algorithm, (1.0, 1.0, 1.0))

    def backward(self, grad: Array) -> tuple[Array, Array, Array]:
        xp, part = self.xp, self.part
        out, lse = self.run()
        lse = lse.astype(self.dtype)[:, None]
        empty = lse == -math.inf
        go = xp.where(empty, self.dtype.type(0), grad.astype(self.dtype))
        if isinstance(self.algorithm, Flash):
            out = xp.where(empty, self.dtype.type(0), out.astype(self.dtype))
            dq, dk, dv = self.tiles(self.algorithm, go, out, xp.where(empty, self.dtype.type(0), lse), empty)
        else:
            dq, dk, dv = self.whole(self.algorithm, go)
        q_side, k_side = {"scores": (self.tau, self.tau), "query": (self.tau, None)}.get(
            self.algorithm.scale_on, (self.root * xp.copysign(self.dtype.type(1), self.tau), self.root)
        )
        dq, dk = self.scaled(dq, q_side), self.scaled(dk, k_side)
        if part.spec.empty_row == "mean" and bool(empty.any()):
            dv = self.keep(dv + mean_gradient(part, grad.astype(self.dtype), empty).astype(self.dtype))
        dq, dk = part.grad_queries(ALL, dq), part.grad_keys(ALL, dk)
        return tuple(self.store(x, self.algorithm.output).astype(np.float64) for x in (dq, dk, dv))

    def scaled(self, x: Array, factor: Any) -> Array:
        """The gradient by q or k from that by the scaled one, which separate operations store."""
        if factor is None:
            return x
        apart = isinstance(self.algorithm, Eager) and self.algorithm.scale_on != "scores"
        return self.keep((self.store(x, self.algorithm.scale_format) if apart else x) * factor)

    def signed(self, a: Array, b: Array, seen: Array | None) -> Array:
        """a @ b; what takes part of an entry of b that is not finite gives NaN."""
        xp = self.xp
        if finite(xp, b):
            return self.dot(a, b)
        seen = xp.ones(a.shape, dtype=bool) if seen is None else xp.broadcast_to(seen, a.shape)
        hit = (seen.astype(a.dtype) @ (~xp.isfinite(b)).astype(a.dtype)) > 0
        return xp.where(hit, self.dtype.type(math.nan), self.dot(a, clean(xp, b)))

    def tiles(self, alg: Flash, go: Array, out: Array, lse: Array, empty: Array) -> tuple[Array, Array, Array]:
        """Blocks of keys, and inside of each, blocks of queries; every sum is kept in `accumulate`."""
        xp, part, keep, zero = self.xp, self.part, self.keep, self.dtype.type(0)
        delta = keep(in_order(keep(go * out), self.acc))
        dq = xp.zeros((part.n, part.d_k), dtype=self.dtype)
        dk, dv = (xp.zeros((part.m, d), dtype=self.dtype) for d in (part.d_k, part.d_v))
        c = self.number(float(self.tau) * math.log2(math.e)) if self.plain else None
        for start in range(0, part.m, alg.block):
            cols = slice(start, min(start + alg.block, part.m))
            s, allowed, slope = self.scores(cols, scaled=not self.plain)
            if c is not None:
                shift = keep(lse * self.number(math.log2(math.e))).astype(np.float64)
                p = self.exp(keep((s.astype(np.float64) * float(c) - shift).astype(self.dtype)), base2=True)
            else:
                p = self.exp(keep(s - lse))
            seen = ~empty if allowed is None else allowed & ~empty
            q, k = self.sides(cols)
            v = part.values(cols).astype(self.dtype)
            drop = part.dropout(ALL, cols)
            dp = self.dot(go, v.T)
            dp = dp if drop is None else xp.where(drop != 0, keep(dp * drop.astype(self.dtype)), zero)
            ds = keep(p * keep(dp - delta))
            ds = ds if slope is None else keep(ds * slope)
            used = p if drop is None else keep(p * drop.astype(self.dtype))
            used, ds = (self.store(xp.where(seen, x, zero), alg.weights) for x in (used, ds))
            view = xp.broadcast_to(seen, s.shape)
            for top in range(0, part.n, alg.block):
                rows = slice(top, min(top + alg.block, part.n))
                dv[cols] = keep(dv[cols] + self.signed(used[rows].T, go[rows], view[rows].T))
                dk[cols] = keep(dk[cols] + self.signed(ds[rows].T, q[rows], view[rows].T))
                dq[rows] = keep(dq[rows] + self.signed(ds[rows], k, view[rows]))
        return dq, dk, dv

    def whole(self, alg: Eager, go: Array) -> tuple[Array, Array, Array]:
        """Operation by operation over whole rows."""
        xp, part, keep, zero = self.xp, self.part, self.keep, self.dtype.type(0)
        p, used, allowed, slope = self.kept
        q, k = self.sides(ALL)
        v = part.values().astype(self.dtype)
        dp = self.store(self.dot(go, v.T), alg.scores)
        drop = part.dropout()
        dp = dp if drop is None else xp.where(drop != 0, keep(dp * drop.astype(self.dtype)), zero)
        dp = dp if allowed is None else xp.where(allowed, dp, zero)
        ds = keep(p * keep(dp - keep(in_order(keep(p * dp), self.acc))))
        ds = ds if slope is None else keep(ds * slope)
        ds = self.store(ds if allowed is None else xp.where(allowed, ds, zero), alg.scores)
        back = None if allowed is None else xp.broadcast_to(allowed, ds.shape).T
        return self.signed(ds, k, allowed), self.signed(ds.T, q, back), self.signed(used.T, go, back)
