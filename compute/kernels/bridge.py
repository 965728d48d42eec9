"""What the rest of `compute` asks of our kernels: `compute.attention(..., algorithm="kernel")`, and the table exp.

Guarantees: the meaning of the call is the resolved one; what the kernels can't do is an InputError that names it.
Does not: run on NumPy arrays (unless a backend, as the emulator, is given), or fall back in silence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compute.arrays import Array, device_errors, namespace
from compute.errors import DeviceError, InputError
from compute.kernels import attention, table_exp
from compute.kernels.attention import Backend
from compute.kernels.sources import FAMILIES, FORMATS
from compute.meaning import Problem


def device() -> Backend:
    """The current device's kernels. Raises DeviceError or NotInstalled without one."""
    from compute.kernels.loader import current

    return current()


def ready(family: str, fmt: str = "float64") -> None:
    """Compile and load a family's kernels on the current device, so that a later call can't fail for want of it.

    Raises DeviceError (no device, or one too old, saying what it has and what is needed), NotInstalled (no compiler).
    """
    device().function(family, fmt, FAMILIES[family].functions[0], 64, 64, 0)


def exp64(x: Array, out: Array | None = None, backend: Backend | None = None) -> Array:
    """`compute.table_exp.exp64` on a device, bit for bit: e^x for x ≤ 0 of a float64 CuPy array, into `out` if given.

    `out` may be x. Has the call shape of numpy.exp, so that it serves as an exp of compute.tier1.
    Raises InputError (another dtype or shape), DeviceError (NumPy arrays, or a device that can't).
    """
    on = _of(x, backend)
    with device_errors(on.xp, "take the exponentials of fewer rows at once, or in place"):
        return table_exp.exp64(on, x, out)


def shifted_exp(scores: Array, top: Array, backend: Backend | None = None) -> Array:
    """scores[i, j] ← e^(scores[i, j] − top[i]) in place, one pass: scores (n, m) float64 with any row stride, top (n,).

    The difference is rounded once and exp is `exp64`: the same bits as `scores -= top[:, None]; exp64(scores, scores)`.
    Raises InputError (shapes, dtypes), DeviceError (NumPy arrays, or a device that can't).
    """
    on = _of(scores, backend)
    with device_errors(on.xp):
        return table_exp.shifted_exp64(on, scores, top)


def _of(array: Array, backend: Backend | None) -> Backend:
    if backend is not None:
        return backend
    if namespace(array=array) is np:
        raise DeviceError("the table exp's kernel runs on a GPU: expected a CuPy array; NumPy has compute.table_exp")
    return device()


def forward(problem: Problem, backend: Backend | None = None) -> tuple[Array, Array]:
    """(output (*batch, h, n, d_v), natural log-sum-exp (*batch, h, n)).

    float64 takes the tensor-core kernels where the device and head sizes allow it.
    """
    backend, call = _prepare(problem, backend)
    out, lse = attention.forward(backend, call, _family(backend, call))
    rows = (*problem.batch, problem.h, problem.n)
    return out.reshape(*rows, out.shape[-1]), lse.reshape(rows)


def backward(
    problem: Problem,
    grad_output: Array,
    grad_lse: Array | None,
    output: Array | None,
    lse: Array | None,
    backend: Backend | None = None,
) -> dict[str, Any]:
    """dq, dk, dv in the shapes of q, k, v; dsink (h,) where there is a sink; dscale as a float."""
    backend, call = _prepare(problem, backend)
    family = _family(backend, call)
    b, h, _, n, _, _, d_v = call.sizes
    if output is None or lse is None:
        output, lse = attention.forward(backend, call, family)
    accumulator = FORMATS[call.format].accumulator
    grads = attention.backward(
        backend,
        call,
        output.reshape(b, h, n, d_v).astype(call.q.dtype, copy=False),
        backend.xp.ascontiguousarray(lse.reshape(b, h, n), dtype=accumulator),
        grad_output.reshape(b, h, n, d_v).astype(call.q.dtype, copy=False),
        None if grad_lse is None else grad_lse.reshape(b, h, n),
        family,
    )
    # d/dscale = sum of ds (q·k), and dq = scale · ds k: so q·dq = scale · d/dscale, softcap or not.
    product = (call.q.astype(accumulator) * grads["dq"].astype(accumulator)).sum()
    scale = problem.spec.scale_value(call.sizes[5])
    shaped = {"dq": problem.q, "dk": problem.k, "dv": problem.v}
    grads = {name: g.reshape(shaped[name].shape) if name in shaped else g for name, g in grads.items()}
    return grads | {"dscale": float(product) / scale if scale else float("nan")}


def _prepare(problem: Problem, backend: Backend | None) -> tuple[Backend, attention.Problem]:
    if backend is None:
        if problem.xp is np:
            raise DeviceError(
                "algorithm 'kernel' runs on a GPU: expected CuPy arrays; NumPy has 'online' and 'bounded'"
            )
        backend = device()
    refused = {
        "a bias or ALiBi slopes": bool(problem.additive) or problem.slopes is not None,
        "dropout": problem.drop is not None,
        "key_lengths": problem.lengths is not None,
        "a sink that differs between batch items": problem.sink is not None and _differs(problem),
    }
    for what, present in refused.items():
        if present:
            raise InputError(f"algorithm 'kernel' does not take {what}: use 'online' or 'bounded'")
    batch = int(np.prod(problem.batch, dtype=int))
    q, k, v = (a.reshape(batch, *a.shape[-3:]) for a in (problem.q, problem.k, problem.v))
    mask = problem.mask
    if mask is not None:
        mask = mask.reshape(batch, *mask.shape[-3:])
        # A mask that was broadcast has stride 0: keep one copy of what repeats.
        mask = mask[:1] if mask.strides[0] == 0 else mask
        mask = mask[:, :1] if mask.strides[1] == 0 else mask
    sink = None if problem.sink is None else problem.sink.reshape(batch, -1)[0]
    return backend, attention.problem(backend.xp, q, k, v, problem.spec, mask, sink)


def _differs(problem: Problem) -> bool:
    assert problem.sink is not None
    rows = problem.sink.reshape(-1, problem.h)
    return bool((rows != rows[:1]).any())


def _family(backend: Backend, call: attention.Problem) -> str:
    *_, d_k, d_v = call.sizes
    capable = getattr(backend, "capability", (9, 0)) >= (9, 0)
    fits = attention.shared_bytes("mma", "attention_backward_q", "float64", d_k, d_v) <= backend.shared_limit
    return "mma" if call.format == "float64" and capable and fits and d_k % 8 == 0 and d_v % 8 == 0 else "simt"
