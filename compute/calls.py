"""The public calls: attention and its gradients, for any arrays, Spec and algorithm.

Guarantees: the library and dtype of results follow the inputs (float16 and bfloat16 are computed in float32 and
rounded once); inputs are never written to; every argument is checked before anything is computed.
Does not: emulate the arithmetic of a low-precision kernel (that is `compute.emulate`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from compute import tiled, tiled_backward, whole
from compute.arrays import Array, device_errors, namespace
from compute.checks import choice, flag, required
from compute.errors import InputError
from compute.meaning import Problem, resolve, same_library
from compute.spec import Spec

Algorithm = Literal["auto", "plain", "shifted", "online", "bounded", "kernel"]
# Below this many scores (in all, or a head), whole matrices are quicker than a loop over tiles.
FEW_CELLS = 1 << 17
SMALL_HEAD = 1 << 14
# Below this many rows, the pass over keys and values that a bound takes costs more than it saves.
FEW_ROWS = 64
ALGORITHMS = ("auto", "plain", "shifted", "online", "bounded", "kernel")


@dataclass(frozen=True)
class Gradients:
    """Gradients of Σ grad_output·output + Σ grad_lse·lse, each in the shape and dtype of what it belongs to.

    dbias and dsink are None where the call had no bias or sink; dscale is the derivative by the scale.
    """

    dq: Array
    dk: Array
    dv: Array
    dbias: Array | None
    dsink: Array | None
    dscale: float


def attention(
    q: Array,
    k: Array,
    v: Array,
    spec: Spec = Spec(),
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Array | None = None,
    key_lengths: Array | int | None = None,
    return_lse: bool = False,
    algorithm: Algorithm = "auto",
    threads: int | None = None,
) -> Any:
    """softmax(cap(τ q kᵀ) + bias) v over the keys that take part.

    q (…, h, n, d_k), k (…, h_kv, m, d_k), v (…, h_kv, m, d_v), or 2-D for one head; the other arguments are those of
    `compute.meaning.resolve`. Returns the output (…, h, n, d_v), or (output, lse) with lse (…, h, n) in the work
    dtype and the Spec's base. A row without key or sink is as spec.empty_row says, its lse −inf.

    algorithm: "plain" (the formula, unshifted: overflows where exp does), "shifted" (by the row's maximum),
    "online" (tiles, O(n) memory), "bounded" (tiles without a maximum where a bound on the scores proves it safe,
    "online" elsewhere), "kernel" (our own CUDA kernels, CuPy arrays only), "auto" (shifted for few scores or small
    heads, online for few rows, else bounded). threads: at most this many (None: the cores there are); results don't
    depend on it.

    Raises InputError (arguments that don't fit), DeviceError (a GPU that can't).
    Source: Vaswani et al. 2017, section 3.2.1, equation (1).

    >>> import numpy as np
    >>> q = np.ones((1, 1)); k = np.array([[3.0], [1.0]]); v = np.array([[1.0], [0.0]])
    >>> attention(q, k, v).round(6)
    array([[0.880797]])
    """
    flag("return_lse", return_lse)
    with device_errors(namespace(q=q, k=k, v=v)):
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
        out, lse = solve(problem, algorithm, threads)
        out = rounded(problem, out, problem.q.dtype)
        return (out, in_base(problem, lse)) if return_lse else out


def attention_backward(
    grad_output: Array,
    q: Array,
    k: Array,
    v: Array,
    spec: Spec = Spec(),
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    sink: Array | float | None = None,
    alibi_slopes: Array | None = None,
    dropout_mask: Array | None = None,
    key_lengths: Array | int | None = None,
    grad_lse: Array | None = None,
    output: Array | None = None,
    lse: Array | None = None,
    algorithm: Algorithm = "auto",
    threads: int | None = None,
) -> Gradients:
    """Vector-Jacobian product of `attention`: gradients by q, k, v, bias, sink and scale.

    grad_output has the output's shape; grad_lse (…, h, n) adds the gradient through a returned log-sum-exp (in the
    Spec's base). output and lse, where given, are trusted to be what `attention` returned for the same arguments;
    without them the tiled algorithms run the forward pass first. "plain" and "shifted" never need them.

    Raises InputError, DeviceError.
    Source: Dao et al. 2022 (FlashAttention), appendix B.2.
    """
    with device_errors(namespace(q=q, k=k, v=v)):
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
        rows = (*problem.batch, problem.h, problem.n)
        grad_output = _like(problem, "grad_output", grad_output, (*rows, problem.v.shape[-1]))
        grad_lse = None if grad_lse is None else _like(problem, "grad_lse", grad_lse, rows)
        output = None if output is None else _like(problem, "output", output, (*rows, problem.v.shape[-1]))
        if lse is not None:
            lse = _like(problem, "lse", lse, rows) * problem.work.type(math.log(spec.lse_base))
        return solve_backward(problem, grad_output, grad_lse, output, lse, algorithm, threads)


# -- which algorithm ------------------------------------------------------------------------------------------------


def solve(problem: Problem, algorithm: str, threads: int | None) -> tuple[Array, Array]:
    """(output, natural log-sum-exp) in the work dtype, with the head axis that a 2-D call lacks."""
    named = choose(problem, algorithm)
    if named in ("plain", "shifted"):
        return whole.forward(problem, shifted=named == "shifted", threads=threads)
    if named == "kernel":
        from compute.kernels import bridge

        return bridge.forward(problem)
    return tiled.forward(problem, bounded=named == "bounded", threads=threads)


def solve_backward(
    problem: Problem,
    grad_output: Array,
    grad_lse: Array | None,
    output: Array | None,
    lse: Array | None,
    algorithm: str,
    threads: int | None,
) -> Gradients:
    """Gradients in the callers' shapes and dtypes."""
    named = choose(problem, algorithm)
    dbias: Array | None
    if named in ("plain", "shifted"):
        shifted = named == "shifted"
        dq, dk, dv, dbias, dsink, dscale = whole.backward(
            problem, grad_output, grad_lse, shifted=shifted, threads=threads
        )
    elif named == "kernel":
        dq, dk, dv, dbias, dsink, dscale = _by_kernels(problem, grad_output, grad_lse, output, lse)
    else:
        bounded = named == "bounded"
        t = tiled_backward.backward(problem, grad_output, grad_lse, output, lse, bounded=bounded, threads=threads)
        dq, dk, dv, dbias, dsink, dscale = t.dq, t.dk, t.dv, t.dbias, t.dsink, float(t.dscale.sum())
    if problem.bias_shape is not None:
        assert dbias is not None
        dbias = dbias.reshape(problem.bias_shape).astype(problem.bias_dtype)
    if problem.sink is not None:
        assert problem.sink_shape is not None
        dsink = whole.summed_to(dsink, problem.sink_shape).astype(problem.sink.dtype)
    return Gradients(
        dq=rounded(problem, dq, problem.q.dtype),
        dk=rounded(problem, dk, problem.k.dtype),
        dv=rounded(problem, dv, problem.v.dtype),
        dbias=None if problem.bias_shape is None else dbias,
        dsink=None if problem.sink is None else dsink,
        dscale=dscale,
    )


def _by_kernels(
    problem: Problem, grad_output: Array, grad_lse: Array | None, output: Array | None, lse: Array | None
) -> tuple[Any, ...]:
    """(dq, dk, dv, dbias, dsink, dscale) from compute.kernels, which sum a sink's gradient over the batch."""
    from compute.kernels import bridge

    if problem.sink_shape is not None and math.prod(problem.sink_shape) not in (1, problem.h):
        raise InputError(f"algorithm 'kernel' gives a sink's gradient a head: its shape {problem.sink_shape} has more")
    if grad_lse is not None:
        grad_lse = grad_lse / problem.work.type(math.log(problem.spec.lse_base))
    k = bridge.backward(problem, grad_output, grad_lse, output, lse)
    dsink = k.get("dsink")
    if dsink is not None:
        assert problem.sink_shape is not None
        dsink = (dsink if math.prod(problem.sink_shape) == problem.h else dsink.sum()).reshape(problem.sink_shape)
    return k["dq"], k["dk"], k["dv"], None, dsink, k["dscale"]


def choose(problem: Problem, algorithm: str) -> str:
    """The algorithm that runs; InputError for an unknown name."""
    choice("algorithm", algorithm, ALGORITHMS)
    if algorithm != "auto":
        return algorithm
    head = problem.n * problem.m
    if head <= SMALL_HEAD or math.prod(problem.batch) * problem.h * head <= FEW_CELLS:
        return "shifted"
    return "bounded" if problem.n >= FEW_ROWS else "online"


# -- shapes, bases, dtypes ------------------------------------------------------------------------------------------


def rounded(problem: Problem, array: Array, dtype: Any) -> Array:
    """The array in the caller's dtype and rank."""
    with np.errstate(over="ignore", invalid="ignore"):
        array = array.astype(dtype, copy=False)
    return array[0] if problem.flat else array


def in_base(problem: Problem, lse: Array) -> Array:
    """A natural log-sum-exp in the Spec's base and the caller's rank."""
    base = problem.spec.lse_base
    lse = lse if base == math.e else lse / problem.work.type(math.log(base))
    return lse[0] if problem.flat else lse


def _like(problem: Problem, name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """A companion array (a gradient, a saved output) in the work dtype, with the head axis of the problem."""
    required(**{name: array})
    same_library(problem.xp, name, array)
    want = shape[1:] if problem.flat else shape
    if tuple(array.shape) != want:
        raise InputError(f"{name} has shape {tuple(array.shape)}: expected {want}")
    if array.dtype.kind in "biuc":
        raise InputError(f"{name} has dtype {array.dtype}: expected a floating dtype")
    array = array.astype(problem.work, copy=False)
    return array[None] if problem.flat else array
