"""Attention by our own kernels, forward and backward, on a GPU or in the emulator.

Guarantees: the meaning of `compute.Spec` for scale, causal corner, window, softcap, groups, empty rows ("zero" and
"nan"), boolean masks and sinks; NaN and inf behind a mask are inert; results repeat to the bit.
Does not: take additive biases, RoPE, dropout or ragged lengths (the array code of `compute` does), and
raises InputError for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from compute.errors import DeviceError, InputError
from compute.kernels.sources import FAMILIES, FORMATS
from compute.spec import Spec

THREADS = 128
NULL = np.uint64(0)
MOST = 1 << 30


class Backend(Protocol):
    """Where kernels run: `compute.kernels.loader.Device` or `compute.kernels.loader.Emulator`."""

    xp: Any
    name: str
    shared_limit: int  # bytes of shared memory that a block can have

    def function(self, family: str, fmt: str, name: str, d_k: int, d_v: int, shared: int) -> Any:
        """A kernel of a family: callable (grid, block, args, shared_mem=...)."""

    def build(self, source: str, name: str) -> Any:
        """A kernel of a source of its own."""

    def keep(self, array: Any) -> Any:
        """A host array where kernels can read it, on any stream."""

    def __hash__(self) -> int:
        """By identity: what is made once a backend (a table on its device) is kept by it."""


@dataclass(frozen=True)
class Problem:
    """One call, checked: arrays as (batch, heads, rows, channels), contiguous, of one format.

    q (b, h, n, d_k), k (b, h_kv, m, d_k), v (b, h_kv, m, d_v); mask (1 or b, 1 or h, n, m) of uint8; sink (h,).
    """

    q: Any
    k: Any
    v: Any
    spec: Spec
    mask: Any = None
    sink: Any = None

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int, int]:
        """b, h, h_kv, n, m, d_k, d_v."""
        b, h, n, d_k = self.q.shape
        return b, h, self.k.shape[1], n, self.k.shape[2], d_k, self.v.shape[3]

    @property
    def format(self) -> str:
        return str(self.q.dtype.name)

    def meaning(self) -> tuple[Any, ...]:
        """The kernel arguments that say how the arrays are read (MEANING_PARAMETERS of common.cuh)."""
        _, h, h_kv, n, m, d_k, _ = self.sizes
        real = FORMATS[self.format].accumulator.type
        batch, head = (0, 0) if self.mask is None else (self.mask.shape[0] > 1, self.mask.shape[1] > 1)
        per_head = n * m
        return (
            NULL if self.mask is None else self.mask,
            np.int64(per_head * self.mask.shape[1] if batch else 0),
            np.int64(per_head if head else 0),
            *(np.int32(x) for x in (n, m, h, h // h_kv)),
            real(self.spec.scale_value(d_k)),
            *(np.int32(x) for x in self.band()),
            real(self.spec.softcap or 0),
        )

    def band(self) -> tuple[int, int]:
        """(low, high): row i sees key j only if low ≤ j − i ≤ high, within −n ≤ low and high ≤ m.

        Causal corner and window in one, whatever the size of a window or of `past`.
        """
        _, _, _, n, m, _, _ = self.sizes
        offset = m - n if self.spec.causal == "bottom-right" else self.spec.past
        left, right = self.spec.window or (None, None)
        low = -n if left is None else offset - left
        high = m if right is None else offset + right
        if self.spec.causal != "none":
            high = min(high, offset)
        return min(max(low, -n), m), min(max(high, -n), m)


def problem(xp: Any, q: Any, k: Any, v: Any, spec: Spec, mask: Any = None, sink: Any = None) -> Problem:
    """Check arrays and spec. Raises InputError for shapes that don't fit and for what the kernels can't do."""
    if any(a.ndim != 4 for a in (q, k, v)):
        raise InputError("kernels take q, k, v as (batch, heads, rows, channels)")
    if spec.rope is not None:
        raise InputError("kernels don't rotate: apply RoPE to q and k first")
    if spec.empty_row in ("mean", "error"):
        raise InputError(f"kernels give 'zero' or 'nan' for an empty row, not {spec.empty_row!r}")
    if not (q.dtype == k.dtype == v.dtype) or q.dtype.name not in FORMATS:
        raise InputError(f"kernels need one dtype of {', '.join(FORMATS)}; got {q.dtype}, {k.dtype}, {v.dtype}")
    b, h, n, d_k = q.shape
    if k.shape[0] != b or k.shape[3] != d_k or v.shape[:3] != k.shape[:3] or k.shape[1] == 0 or h % k.shape[1]:
        raise InputError(f"q {q.shape}, k {k.shape} and v {v.shape} don't fit together")
    if min(n, k.shape[2], d_k, v.shape[3], b) == 0:
        raise InputError("kernels need at least one row, key and channel")
    if n + k.shape[2] >= MOST:
        raise InputError(
            f"kernels count rows and keys by 32 bits: n + m is {n + k.shape[2]}, expected less than {MOST}"
        )
    groups = h // k.shape[1]
    if spec.groups not in (None, groups):
        raise InputError(f"spec.groups is {spec.groups}, but h / h_kv = {groups}")
    if mask is not None:
        if mask.dtype != bool:
            raise InputError(f"mask has dtype {mask.dtype}: expected bool, True = this key takes part")
        mask = xp.asarray(mask).reshape((1,) * (4 - mask.ndim) + mask.shape)
        mask = xp.broadcast_to(mask, (mask.shape[0], mask.shape[1], n, k.shape[2]))
        if mask.shape[0] not in (1, b) or mask.shape[1] not in (1, h):
            raise InputError(f"mask {mask.shape} does not broadcast to {(b, h, n, k.shape[2])}")
        mask = xp.ascontiguousarray(mask).view(xp.uint8)
    if sink is not None:
        sink = xp.ascontiguousarray(sink, dtype=FORMATS[q.dtype.name].accumulator)
        if sink.shape != (h,):
            raise InputError(f"sink has shape {sink.shape}: expected ({h},), one logit a query head")
    q, k, v = (xp.ascontiguousarray(a) for a in (q, k, v))
    return Problem(q, k, v, spec, mask, sink)


def shared_bytes(family: str, function: str, fmt: str, d_k: int, d_v: int) -> int:
    """Dynamic shared memory of a kernel; the layout is the one its source carves."""
    size = FORMATS[fmt].accumulator.itemsize
    if family == "mma":
        forward = (64 + 32) * (d_k + 4) + 32 * (d_v + 2)
        backward = (64 + 32) * (d_k + 4) + (64 + 32) * (d_v + 4)
        return size * (forward if function == "attention_forward" else backward)
    if function == "attention_forward":
        return size * (64 * (d_k + 1) + 32 * (max(d_k, d_v) + 1) + 64 * 33)
    return size * (2 * 32 * (d_k + 1) + 2 * 32 * (d_v + 1) + 2 * 32 * 33)


def rows_per_block(family: str, function: str) -> int:
    if function == "attention_forward":
        return 64
    return 64 if family == "mma" else 32


def forward(backend: Backend, p: Problem, family: str = "simt", *, poison: bool = False) -> tuple[Any, Any]:
    """Output (b, h, n, d_v) in the format of q, and log-sum-exp (b, h, n) in the format of the arithmetic.

    poison: fill the outputs with NaN first, so that what a kernel leaves unwritten shows.
    """
    b, h, _, n, _, _, d_v = p.sizes
    xp, accumulator = backend.xp, FORMATS[p.format].accumulator
    make = (lambda s, t: xp.full(s, xp.nan, t)) if poison else xp.empty
    out, lse = make((b, h, n, d_v), p.q.dtype), make((b, h, n), accumulator)
    arguments = (p.q, p.k, p.v, out, lse, NULL if p.sink is None else p.sink, np.int32(p.spec.empty_row == "nan"))
    _launch(backend, p, family, "attention_forward", n, b * h, arguments + p.meaning())
    return out, lse


def backward(
    backend: Backend,
    p: Problem,
    out: Any,
    lse: Any,
    grad_output: Any,
    grad_lse: Any = None,
    family: str = "simt",
    *,
    poison: bool = False,
) -> dict[str, Any]:
    """Gradients dq, dk, dv (and dsink (h,)) from what `forward` returned and the upstream gradients.

    poison: as in `forward`.
    """
    b, h, h_kv, n, m, _, _ = p.sizes
    xp, accumulator = backend.xp, FORMATS[p.format].accumulator
    if grad_output.shape != out.shape or grad_output.dtype != out.dtype:
        raise InputError(f"grad_output is {grad_output.dtype}{grad_output.shape}, the output {out.dtype}{out.shape}")
    out, lse, grad_output = (xp.ascontiguousarray(a) for a in (out, lse, grad_output))
    grad_lse = None if grad_lse is None else xp.ascontiguousarray(grad_lse, dtype=accumulator)
    delta = xp.empty((b, h, n), accumulator)
    dsink = None if p.sink is None else xp.empty((b, h, n), accumulator)
    optional = tuple(NULL if a is None else a for a in (grad_lse, p.sink))
    _launch(
        backend,
        p,
        family,
        "attention_delta",
        n,
        b * h,
        (out, grad_output, lse, *optional, delta, NULL if dsink is None else dsink, np.int32(n), np.int32(h)),
        rows=THREADS,
    )
    dq, dk, dv = (xp.full_like(a, xp.nan) if poison else xp.empty_like(a) for a in (p.q, p.k, p.v))
    common = (p.q, p.k, p.v, grad_output, lse, delta)
    _launch(backend, p, family, "attention_backward_q", n, b * h, (*common, dq, *p.meaning()))
    _launch(backend, p, family, "attention_backward_kv", m, b * h_kv, (*common, dk, dv, *p.meaning()))
    grads = {"dq": dq, "dk": dk, "dv": dv}
    if dsink is not None:
        grads["dsink"] = dsink.sum(axis=(0, 2))
    return grads


def _launch(
    backend: Backend, p: Problem, family: str, name: str, count: int, heads: int, args: Any, rows: int = 0
) -> None:
    if name not in FAMILIES[family].functions:
        raise InputError(f"kernel family {family!r} has no {name}")
    *_, d_k, d_v = p.sizes
    shared = 0 if name == "attention_delta" else shared_bytes(family, name, p.format, d_k, d_v)
    if shared > backend.shared_limit:
        raise DeviceError(
            f"{name} with d_k = {d_k}, d_v = {d_v} in {p.format} needs {shared // 1024 + 1} KB of shared memory a "
            f"block, and {backend.name} has {backend.shared_limit // 1024}: use algorithm='online'"
        )
    function = backend.function(family, p.format, name, d_k, d_v, shared)
    rows = rows or rows_per_block(family, name)
    blocks = (count + rows - 1) // rows * heads
    if blocks >= 1 << 31:
        raise InputError(f"{name} would be {blocks} blocks: expected less than 2^31; call it with fewer heads")
    function((blocks,), (THREADS,), args, shared_mem=shared)
