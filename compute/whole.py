"""The plain formulas over a whole problem, a piece of the batch at a time.

Guarantees: what compute.plain gives for each batch index, put together; temporaries of about `CELLS` scores (or one
batch index, where that is more); sums over the batch run in order, whatever the thread count.
Does not: cut one batch index: its heads and rows are whole matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from compute import plain
from compute.arrays import Array
from compute.problem import Problem
from compute.threads import count, run

CELLS = 1 << 17


def forward(problem: Problem, *, shifted: bool, threads: int | None) -> tuple[Array, Array]:
    """(output (*batch, h, n, d_v), natural log-sum-exp (*batch, h, n)) in the work dtype."""
    rows = (*problem.batch, problem.h, problem.n)
    out = problem.xp.empty((*rows, problem.v.shape[-1]), dtype=problem.work)
    lse = problem.xp.empty(rows, dtype=problem.work)

    def solve(at: Any, piece: Problem) -> None:
        out[at], lse[at] = plain.forward(piece.whole(), shifted=shifted)

    _each(problem, solve, threads)
    return out, lse


def backward(
    problem: Problem, grad_out: Array, grad_lse: Array | None, *, shifted: bool, threads: int | None
) -> tuple[Array, Array, Array, Array | None, Array | None, float]:
    """(dq, dk, dv, dbias, dsink, dscale): dk, dv summed over groups, dbias to the bias's shape, dsink (*batch, h)."""
    xp, work = problem.xp, problem.work
    dq, dk, dv = (xp.empty(x.shape, dtype=work) for x in (problem.q, problem.k, problem.v))
    dsink = None if problem.sink is None else xp.empty(problem.sink.shape, dtype=work)
    dbias = None if problem.bias_shape is None else xp.zeros(problem.bias_shape, dtype=work)

    def solve(at: Any, piece: Problem) -> tuple[Array | None, float]:
        g = plain.backward(piece.whole(), grad_out[at], None if grad_lse is None else grad_lse[at], shifted=shifted)
        dq[at], dk[at], dv[at] = g.dq, over_groups(problem, g.dk), over_groups(problem, g.dv)
        if dsink is not None:
            dsink[at] = g.dsink
        return None if dbias is None else summed_to(g.dbias, _shape_of_piece(problem, piece)), g.dscale

    parts = _each(problem, solve, threads)
    if dbias is not None:
        for at, (bias, _) in parts:
            dbias[at if _has_batch(problem) else ...] += bias
    return dq, dk, dv, dbias, dsink, float(sum(scale for _, (_, scale) in parts))


def _each(problem: Problem, call: Callable[[Any, Problem], Any], threads: int | None) -> list[tuple[Any, Any]]:
    """(index, result) of every piece, in order."""
    pieces = list(problem.pieces(CELLS))
    results: list[Any] = [None] * len(pieces)

    def solve(number: int, space: None) -> None:
        results[number] = call(*pieces[number])

    tasks: list[Callable[[None], None]] = [functools.partial(solve, number) for number in range(len(pieces))]
    run(tasks, lambda: None, count(threads) if problem.xp is np else 1)
    return [(at, result) for (at, _), result in zip(pieces, results, strict=True)]


def over_groups(problem: Problem, grad: Array) -> Array:
    """(…, h, m, d) summed over the query heads that share a key-value head."""
    if problem.groups == 1:
        return grad
    shape = (*grad.shape[:-3], problem.h // problem.groups, problem.groups, *grad.shape[-2:])
    return grad.reshape(shape).sum(axis=-3)


def summed_to(grad: Array, shape: tuple[int, ...]) -> Array:
    """A gradient summed back to the shape that was broadcast to its own."""
    grad = grad.sum(axis=tuple(range(grad.ndim - len(shape))))
    return grad.sum(axis=tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True)


def _has_batch(problem: Problem) -> bool:
    """Whether the bias has its own entries along the first batch axis."""
    shape = problem.bias_shape
    return shape is not None and len(shape) == problem.q.ndim and shape[0] > 1


def _shape_of_piece(problem: Problem, piece: Problem) -> tuple[int, ...]:
    assert problem.bias_shape is not None
    if not _has_batch(problem):
        return problem.bias_shape
    return (int(piece.q.shape[0]), *problem.bias_shape[1:])
