"""A float64 reference of attention and its gradients for kernel tests, and the cases they run on.

Written apart from `compute`: one dense formula, masks as a table of booleans.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compute.kernels.attention import Problem, problem
from compute.kernels.sources import FORMATS
from compute.spec import Spec

CASES: dict[str, dict[str, Any]] = {
    "plain": {"n": 64, "m": 64},
    "ragged": {"n": 70, "m": 41},
    "one key": {"n": 3, "m": 1},
    "causal bottom-right": {"n": 50, "m": 75, "spec": Spec(causal="bottom-right")},
    "causal, empty rows": {"n": 75, "m": 40, "spec": Spec(causal="bottom-right")},
    "causal with past": {"n": 40, "m": 70, "spec": Spec(causal=True, past=13)},
    "window": {"n": 90, "m": 90, "spec": Spec(window=(20, 3))},
    "window, causal, softcap": {"n": 70, "m": 100, "spec": Spec(causal=True, window=(33, None), softcap=3.0)},
    "mask and sink": {"n": 66, "m": 67, "masked": True, "sink": True},
    "everything": {
        "n": 70,
        "m": 97,
        "masked": True,
        "sink": True,
        "spec": Spec(causal="bottom-right", window=(40, 0), softcap=5.0, scale=0.3),
    },
    "large scores": {"n": 40, "m": 80, "spec": Spec(scale=40.0)},
}


def case(name: str, fmt: str, d_k: int = 16, d_v: int = 24, seed: int = 0) -> Problem:
    """The named problem with 2 batches, 4 query heads and 2 key-value heads."""
    c = CASES[name]
    rng = np.random.default_rng([seed, *name.encode()])
    dtype, n, m = FORMATS[fmt].dtype, c["n"], c["m"]
    q, k, v = (
        rng.standard_normal((2, heads, rows, width)).astype(dtype)
        for heads, rows, width in ((4, n, d_k), (2, m, d_k), (2, m, d_v))
    )
    mask = rng.random((2, 1, n, m)) < 0.7 if c.get("masked") else None
    sink = rng.standard_normal(4) if c.get("sink") else None
    return problem(np, q, k, v, c.get("spec", Spec()), mask, sink)


def _table(p: Problem) -> Any:
    """True where a query sees a key."""
    *_, n, m, _, _ = p.sizes
    i, j = np.arange(n)[:, None], np.arange(m)[None, :]
    center = i + (m - n if p.spec.causal == "bottom-right" else p.spec.past)
    sees = np.ones((n, m), bool)
    if p.spec.causal != "none":
        sees &= j <= center
    left, right = p.spec.window or (None, None)
    if left is not None:
        sees &= j >= center - left
    if right is not None:
        sees &= j <= center + right
    return sees if p.mask is None else sees & (p.mask != 0)


def reference(p: Problem, grad_output: Any = None, grad_lse: Any = None) -> dict[str, Any]:
    """out, lse and, with grad_output, dq, dk, dv, dsink in float64."""
    b, h, h_kv, n, m, d_k, _ = p.sizes
    q, k, v = (np.asarray(a, np.float64) for a in (p.q, p.k, p.v))
    k, v = np.repeat(k, h // h_kv, axis=1), np.repeat(v, h // h_kv, axis=1)
    scale = p.spec.scale_value(d_k)
    raw = q @ k.swapaxes(-1, -2) * scale
    cap = p.spec.softcap
    slope = scale * (1 - np.tanh(raw / cap) ** 2) if cap else np.full_like(raw, scale)
    s = np.where(np.broadcast_to(_table(p), raw.shape), cap * np.tanh(raw / cap) if cap else raw, -np.inf)
    columns = [s] if p.sink is None else [s, np.broadcast_to(p.sink[:, None, None].astype(float), (b, h, n, 1))]
    full = np.concatenate(columns, axis=-1)
    top = full.max(axis=-1, keepdims=True)
    e = np.exp(full - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    a = np.where(total > 0, e / np.where(total > 0, total, 1), 0)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    out = {"out": a[..., :m] @ v, "lse": lse}
    if grad_output is None:
        return out
    g = np.asarray(grad_output, np.float64)
    delta = (g * out["out"]).sum(axis=-1, keepdims=True)
    if grad_lse is not None:
        delta = delta - np.where(np.isneginf(lse), 0, grad_lse)[..., None]
    ds = a[..., :m] * (g @ v.swapaxes(-1, -2) - delta) * slope

    def group(x: Any) -> Any:
        return x.reshape(b, h_kv, h // h_kv, m, -1).sum(axis=2)

    out |= {"dq": ds @ k, "dk": group(ds.swapaxes(-1, -2) @ q), "dv": group(a[..., :m].swapaxes(-1, -2) @ g)}
    if p.sink is not None:
        out["dsink"] = -(a[..., m:] * delta).sum(axis=(0, 2, 3))
    return out


def distance(got: Any, want: Any) -> float:
    """Relative distance in the Frobenius norm; inf where the patterns of NaN and inf differ."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    finite = np.isfinite(want)
    if got.shape != want.shape or not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return float("inf")
    if not np.isfinite(got[finite]).all():
        return float("inf")
    norm = float(np.linalg.norm(want[finite]))
    return float(np.linalg.norm(got[finite] - want[finite])) / (norm or 1.0)
