"""The power of the statistics: small defects of a flash kernel in 16 bits, each at two dtypes and two score sizes."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from verify.checking.allowance import parse_algorithm
from verify.checking.calls import Array, Call, Reply, dtype_of
from verify.checking.statistics import FALSE_ALARM, forward_sample, judged

SETTINGS = [(dtype, size) for dtype in ("float16", "bfloat16") for size in (1.0, 3.0)]
DEFECTS = (
    "scale off by 0.1 %", "stale key", "stale value", "last key dropped", "block 3 not rescaled", "weights truncated",
    "16-bit accumulator", "normaliser off by 0.05 %",
)  # fmt: skip


def rounded(x: Array, dtype: Any) -> Array:
    return x.astype(dtype).astype(np.float32)


def truncated(x: Array, dtype: Any) -> Array:
    near = x.astype(dtype)
    below = np.nextafter(near, dtype(0)) if dtype == np.float16 else near
    if dtype != np.float16:
        bits = x.view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)
    return np.where(near.astype(np.float32) > x, below, near).astype(np.float32)


def flash(call: Call, defect: str, block: int = 128) -> Array:
    """One head in blocks of keys, weights cast to the dtype, sums in float32, and perhaps one defect."""
    kind = np.float16 if call.dtype == np.float16 else ml_dtypes.bfloat16
    q, k, v = (x[0, 0].astype(np.float32) for x in (call.q, call.k, call.v))
    m = len(k)
    scale = np.float32(q.shape[1] ** -0.5 * (1.001 if defect == DEFECTS[0] else 1.0))
    if defect == "stale key":
        k[m // 2] = k[m // 2 - 1]
    if defect == "stale value":
        v[m // 2] = v[m // 2 - 1]
    if defect == "last key dropped":
        k, v = k[:-1], v[:-1]
    acc, total = np.zeros((len(q), v.shape[1]), np.float32), np.zeros((len(q), 1), np.float32)
    top = np.full((len(q), 1), -np.inf, np.float32)
    for b, j in enumerate(range(0, len(k), block)):
        s = (q @ k[j : j + block].T) * scale
        new = np.maximum(top, s.max(1, keepdims=True))
        old, e = np.exp(top - new), np.exp(s - new)
        p = truncated(e, kind) if defect == "weights truncated" else rounded(e, kind)
        kept = np.float32(1) if defect == "block 3 not rescaled" and b == 3 else old
        acc = acc * kept + p @ v[j : j + block]
        total = total * old + e.sum(1, keepdims=True, dtype=np.float32)
        if defect == "16-bit accumulator":
            acc = rounded(acc, kind)
        top = new
    if defect == "normaliser off by 0.05 %":
        total = total * np.float32(1.0005)
    return (acc / total).astype(call.dtype)[None, None]


def alarms(dtype: str, size: float, defect: str, block: int = 128) -> list[str]:
    rng = np.random.default_rng(11)
    kind = dtype_of(dtype)
    q, k, v = (rng.standard_normal((1, 1, 1024, 64)) for _ in range(3))
    call = Call(*((x * s).astype(kind) for x, s in ((q, size), (k, 1), (v, 1))))
    judge = parse_algorithm(f"flash:block=128,weights={dtype}", dtype)
    (sample,) = forward_sample(call, Reply(output=flash(call, defect, block)), judge)
    return [f.name for f in judged(sample, FALSE_ALARM / 16) if f.value > f.threshold]


@pytest.mark.parametrize(("dtype", "size"), SETTINGS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_small_defect_is_suspicious(defect: str, dtype: str, size: float) -> None:
    assert alarms(dtype, size, defect)


@pytest.mark.parametrize(("dtype", "size"), SETTINGS)
@pytest.mark.parametrize("block", [64, 96, 128])
def test_a_correct_kernel_is_not(block: int, dtype: str, size: float) -> None:
    assert alarms(dtype, size, "none", block) == []
