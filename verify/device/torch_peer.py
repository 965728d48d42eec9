"""torch's attention on the same device, one row a backend; nothing where torch is not installed."""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import numpy as np

from verify.device.record import Record


def time_backends(record: Record, fmt: str, n: int, heads: int, flops: float) -> None:
    """Median milliseconds of each backend that takes this format, and its error beside float64."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not torch.cuda.is_available():
        return
    dtype = getattr(torch, fmt)
    rng = np.random.default_rng(n)
    q, k, v = (torch.as_tensor(rng.standard_normal((1, heads, n, 64)), device="cuda").to(dtype) for _ in range(3))
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        if backend == "MATH" and heads * n * n * q.element_size() > 20e9:
            continue
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                seconds, out = _median(torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
        except RuntimeError as error:
            record.row(what=f"torch {backend} {fmt}", n=n, unsupported=str(error).splitlines()[0][:80])
            continue
        rows = slice(0, 64)
        exact = torch.softmax(q[:, :, rows].double() @ k.double().mT * 0.125, -1) @ v.double()
        off = float((out[:, :, rows].double() - exact).norm() / exact.norm())
        record.row(
            what=f"torch {backend} {fmt}",
            n=n,
            forward_ms=seconds * 1e3,
            tflops=flops / seconds / 1e12,
            relative_error=off,
        )


def _median(torch: Any, run: Any, repeats: int = 7) -> tuple[float, Any]:
    out = run()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for i in range(repeats):
        run()
        events[i + 1].record()
    torch.cuda.synchronize()
    elapsed = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
    return float(np.median(elapsed)) * 1e-3, out
