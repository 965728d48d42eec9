"""Attention in low precision, operation by operation: the subjects that the a-priori bounds are attacked with.

Written apart from compute.emulate, so that a bound is never tested with the emulator it was derived beside.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

F32 = np.float32
DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
FORMATS = tuple(DTYPES)


def quant(x: Any, fmt: str) -> np.ndarray:
    """Round to a format, and hold the result in float64."""
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(DTYPES[fmt]).astype(np.float64)


def flush(x: np.ndarray) -> np.ndarray:
    """Subnormal float32 numbers become zero."""
    return np.where(np.abs(x) < np.finfo(F32).tiny, F32(0), x)


def flash(
    q, k, v, *, weights="float32", output="float32", acc=F32, block=64, exp=np.exp, base2=False, keep=None, scale=None
):
    """Blocks of keys with a running maximum; everything but the cast of the weights and the output in `acc`."""
    with np.errstate(all="ignore"):
        return _flash(q, k, v, weights, output, acc, block, exp, base2, keep, scale)


def _flash(q, k, v, weights, output, acc, block, exp, base2, keep, scale):
    q, k, v = (np.asarray(x, acc) for x in (q, k, v))
    tau = acc(1 / math.sqrt(q.shape[1]) if scale is None else scale)
    n = len(q)
    out = np.zeros((n, v.shape[1]), acc)
    norm, top = np.zeros((n, 1), acc), np.full((n, 1), -np.inf, acc)
    c = acc(acc(tau) * acc(math.log2(math.e)))
    for j in range(0, len(k), block):
        raw = q @ k[j : j + block].T
        s = raw if base2 else raw * tau
        if keep is not None:
            s = np.where(keep[:, j : j + block], s, acc(-np.inf))
        new = np.maximum(top, s.max(axis=1, keepdims=True))
        safe = np.where(np.isfinite(new), new, acc(0))
        if base2:
            e, alpha = np.exp2(s * c - safe * c), np.exp2((top - safe) * c)
        else:
            e, alpha = exp(s - safe), exp(top - safe)
        e, alpha = e.astype(acc), alpha.astype(acc)
        norm = norm * alpha + e.sum(axis=1, keepdims=True, dtype=acc)
        cast = quant(e, weights).astype(acc) if weights != np.dtype(acc).name else e
        out = out * alpha + cast @ v[j : j + block]
        top = new
    return quant(out / norm, output)


def eager(
    q, k, v, *, fmt, weights, output, acc=F32, style="fused", shifted=True, exp=np.exp, keep=None, scale_on="scores"
):
    """Separate operations. style: "fused" (product and scale in one), "two" (raw product stored), "every" (all)."""
    with np.errstate(all="ignore"):
        return _eager(q, k, v, fmt, weights, output, acc, style, shifted, exp, keep, scale_on)


def _eager(q, k, v, fmt, weights, output, acc, style, shifted, exp, keep, scale_on):
    q, k, v = (np.asarray(x, acc) for x in (q, k, v))

    def store(x):
        return quant(x, fmt).astype(acc) if fmt is not None else x

    d = q.shape[1]
    if scale_on == "both":
        root = acc(math.sqrt(1 / math.sqrt(d)))
        s = store(store(q * root) @ store(k * root).T)
    elif style == "fused":
        s = store((q @ k.T) * acc(1 / math.sqrt(d)))
    else:
        s = store(store(q @ k.T) * acc(1 / math.sqrt(d)))
    if keep is not None:
        s = np.where(keep, s, acc(-np.inf))
    x = s - s.max(axis=1, keepdims=True) if shifted else s
    x = store(x) if style == "every" else x
    x = x if keep is None else np.where(keep, x, acc(-np.inf))  # e4m3 has no infinity to store
    e = exp(x).astype(acc)
    e = store(e) if style == "every" else e
    norm = e.sum(axis=1, keepdims=True, dtype=acc)
    norm = store(norm) if style == "every" else norm
    p = e / norm
    p = quant(p, weights).astype(acc) if weights != np.dtype(acc).name else p
    return quant(p @ v, output)


def flash_backward(q, k, v, go, *, fmt, block=64, keep=None):
    """FlashAttention's backward pass: weights from the log-sum-exp, P and dS cast to fmt, float32 sums."""
    with np.errstate(all="ignore"):
        out = flash(q, k, v, weights=fmt, output=fmt, block=block, keep=keep).astype(F32)
        q, k, v, go = (np.asarray(x, F32) for x in (q, k, v, go))
        n, tau = len(q), F32(1 / math.sqrt(q.shape[1]))
        s = (q @ k.T) * tau
        if keep is not None:
            s = np.where(keep, s, F32(-np.inf))
        top = s.max(axis=1, keepdims=True)
        lse = top + np.log(np.exp(s - top).sum(axis=1, keepdims=True, dtype=F32))
        delta = (go * out).sum(axis=1, keepdims=True, dtype=F32)
        p = np.exp(s - lse)
        ds = p * (go @ v.T - delta)
        if fmt != "float32":
            p, ds = quant(p, fmt).astype(F32), quant(ds, fmt).astype(F32)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        for j in range(0, len(k), block):
            dq += ds[:, j : j + block] @ k[j : j + block]
        for i in range(0, n, block):
            dk += ds[i : i + block].T @ q[i : i + block]
            dv += p[i : i + block].T @ go[i : i + block]
        return {"dq": quant(dq * tau, fmt), "dk": quant(dk * tau, fmt), "dv": quant(dv, fmt)}


def eager_backward(q, k, v, go, *, fmt, keep=None):
    """Separate operations: stored weights, every intermediate stored in fmt, float32 inside each operation."""
    with np.errstate(all="ignore"):
        q, k, v, go = (np.asarray(x, F32) for x in (q, k, v, go))
        tau = F32(1 / math.sqrt(q.shape[1]))

        def store(x):
            return x if fmt == "float32" else quant(x, fmt).astype(F32)

        s = store((q @ k.T) * tau)
        if keep is not None:
            s = np.where(keep, s, F32(-np.inf))
        e = np.exp(s - s.max(axis=1, keepdims=True))
        p = store(e / e.sum(axis=1, keepdims=True, dtype=F32))
        dp = store(go @ v.T)
        ds = store(p * (dp - (p * dp).sum(axis=1, keepdims=True, dtype=F32)))
        dq, dk, dv = (ds @ k) * tau, (ds.T @ q) * tau, p.T @ go
        return {"dq": quant(dq, fmt), "dk": quant(dk, fmt), "dv": quant(dv, fmt)}
