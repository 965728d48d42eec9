"""Attention with every feature at once, right or with a fault that shows only where two of its features meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.verify.faulty import band, corner, masked, repeated, wide
from tests.verify.faulty_gradients import turned

Function = Callable[..., Any]
# name of the fault -> the features that must meet
PAIRS = {
    "softcap dropped under a window": ("window", "softcap"),
    "window dropped under ALiBi": ("window", "ALiBi"),
    "sink left out under causal": ("causal", "sink"),
    "sink left out under a window": ("window", "sink"),
    "sink capped too": ("softcap", "sink"),
    "distances count visible keys": ("mask", "ALiBi"),
    "slopes meet the cap": ("softcap", "ALiBi"),
    "scale left out before a cap": ("softcap", "scale"),
    "bias read by keys from the window's start": ("window", "bias"),
    "log-sum-exp before the sink": ("sink", "lse"),
}
ROTARY = {"keys one place on under a mask": ("mask", "RoPE")}


def every(wrong: str = "") -> Function:
    """A function of every feature but RoPE."""

    def attention(
        q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, causal: bool = False, scale: float | None = None,
        window: Any = None, softcap: float | None = None, sink: Any = None, alibi_slopes: Any = None,
        return_lse: bool = False,
    ) -> Any:  # fmt: skip
        h, n, m = q.shape[1], q.shape[2], k.shape[2]
        usual = q.shape[-1] ** -0.5
        tau = usual if scale is None or (wrong == "scale left out before a cap" and softcap is not None) else scale
        s = wide(q) @ repeated(wide(k), h).swapaxes(-1, -2)
        s = s * s.dtype.type(tau)
        far = np.abs(np.arange(n)[:, None] - np.arange(m)).astype(s.dtype)
        if wrong == "distances count visible keys" and mask is not None:
            far = np.abs(np.arange(n)[:, None] - (np.cumsum(np.broadcast_to(mask, s.shape), -1) - 1)).astype(s.dtype)
        slopes = None if alibi_slopes is None else wide(alibi_slopes).reshape(-1, 1, 1) * far
        capped = softcap is not None and not (wrong == "softcap dropped under a window" and window is not None)
        early = wrong == "slopes meet the cap" and slopes is not None
        if early:
            s = s - slopes
        if capped:
            s = s.dtype.type(softcap) * np.tanh(s / s.dtype.type(softcap))
        if bias is not None:
            add = wide(bias)
            if wrong == "bias read by keys from the window's start" and window is not None and window[0]:
                add = np.roll(np.broadcast_to(add, s.shape), 1, -1)
            s = s + add
        if slopes is not None and not early:
            s = s - slopes
        s = corner(masked(s, mask), causal)
        s = band(s, None if wrong == "window dropped under ALiBi" and slopes is not None else window)
        with_sink = sink is not None
        if wrong == "sink left out under causal" and causal:
            with_sink = False
        if wrong == "sink left out under a window" and window not in (None, (None, None)):
            with_sink = False
        top = s.max(-1, keepdims=True, initial=-np.inf)
        sunk: Any = -np.inf
        if with_sink:
            sunk = wide(sink).reshape(-1, 1, 1)
            if wrong == "sink capped too" and softcap is not None:
                sunk = softcap * np.tanh(sunk / softcap)
            top = np.maximum(top, sunk)
        top = np.where(np.isfinite(top), top, 0).astype(s.dtype)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True) + np.exp(sunk - top).astype(s.dtype)
        keys = e.sum(-1, keepdims=True) if wrong == "log-sum-exp before the sink" and sink is not None else total
        out = ((e / np.where(total > 0, total, 1)) @ repeated(wide(v), h)).astype(v.dtype)
        if not return_lse:
            return out
        with np.errstate(divide="ignore"):
            return out, (np.log(keys) + top)[..., 0]

    return attention


def rotary(wrong: str = "") -> Function:
    """A function of a mask under RoPE in halves."""

    def attention(q: Any, k: Any, v: Any, *, mask: Any = None, q_offset: int = 0, k_offset: int = 0) -> Any:
        moved = turned(k, k_offset)
        if wrong and mask is not None and k_offset:
            moved = turned(k, k_offset + 1)
        s = turned(q, q_offset) @ moved.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        s = masked(s, mask)
        top = s.max(-1, keepdims=True, initial=-np.inf)
        e = np.exp(s - np.where(np.isfinite(top), top, 0))
        total = e.sum(-1, keepdims=True)
        return ((e / np.where(total > 0, total, 1)) @ v.astype(np.float64)).astype(v.dtype)

    return attention
