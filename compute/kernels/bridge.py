"""`compute.attention(..., algorithm="kernel")`: a resolved call handed to our own kernels.

Guarantees: the meaning of the call is the resolved one; what the kernels can't do is an InputError that names it.
Does not: run on NumPy arrays (unless a backend, as the emulator, is given), or fall back in silence.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from compute.arrays import Array
from compute.errors import DeviceError, InputError
from compute.kernels import attention
from compute.kernels.attention import Backend
from compute.kernels.sources import FORMATS
from compute.meaning import Problem


@cache
def device() -> Backend:
    """The current device's kernels. Raises DeviceError or NotInstalled without one."""
    from compute.kernels.loader import Device

    return Device()


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
    fits = attention.shared_bytes("mma", "attention_backward_q", "float64", d_k, d_v) <= 227 * 1024
    return "mma" if call.format == "float64" and capable and fits and d_k % 8 == 0 and d_v % 8 == 0 else "simt"
