"""The ONNX node tests run through `compute`: Attention, Softmax and RotaryEmbedding by the operators' texts.

Guarantees: masks, corners, windows, softcap, groups and empty rows are left to `compute`; only the operator's own
bookkeeping (rank-3 inputs, past keys, short masks, the second outputs) is done here.
Does not: import onnx (cases are handed in as arrays and attributes), or cover other operators.

Source: onnx.ai, operators Attention-23 to -25, Softmax-13, RotaryEmbedding-23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]


def attention(inputs: Sequence[Array | None], attributes: Attributes, outputs: Sequence[str]) -> list[Array | None]:
    """Y, present_key, present_value, qk_matmul_output, as many as asked for.

    inputs: Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, absent ones None.
    """
    import compute

    given: list[Array | None] = [*inputs, *[None] * (7 - len(inputs))]
    q, k, v, mask, past_key, past_value, lengths = given
    assert q is not None
    assert k is not None
    assert v is not None
    flat = q.ndim == 3
    if flat:
        q = _heads(q, attributes["q_num_heads"])
        k, v = (_heads(x, attributes["kv_num_heads"]) for x in (k, v))
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    window = tuple(None if w is None or w < 0 else w for w in _window(attributes))
    causal = bool(attributes.get("is_causal", 0))
    by_length = lengths is not None
    spec = compute.Spec(
        scale=attributes.get("scale"),
        causal="none" if not causal else "bottom-right" if by_length else "top-left",
        window=None if window == (None, None) else window,  # type: ignore[arg-type]
        softcap=attributes.get("softcap") or None,
        past=0 if by_length else past,
    )
    more: dict[str, Any] = {}
    if lengths is not None:
        more["key_lengths"] = lengths.astype(np.int64)
        if spec.window is not None and not causal:
            # compute places a window at the causal corner: without causal the operator still counts from the length
            spec = spec.with_(window=None)
            more["mask"] = _band(q, k, lengths, window)
    if mask is not None:
        mask = _extended(mask, k.shape[2])
        if mask.dtype == bool:
            more["mask"] = mask & more["mask"] if "mask" in more else mask
        else:
            more["bias"] = mask.astype(q.dtype)
    y = compute.attention(q, k, v, spec, **more)
    found: list[Array | None] = [
        y.transpose(0, 2, 1, 3).reshape(*y.shape[::2][:1], y.shape[2], -1) if flat else y,
        k,
        v,
    ]
    if len(outputs) > 3:
        found.append(_scores(q, k, spec, more, attributes.get("qk_matmul_output_mode", 0)))
    return found[: len(outputs)]


def _heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _window(attributes: Attributes) -> tuple[int, int]:
    return attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)


def _band(q: Array, k: Array, lengths: Array, window: tuple[int | None, ...]) -> Array:
    i = np.arange(q.shape[2])[:, None] + (lengths.astype(np.int64) - q.shape[2]).reshape(-1, 1, 1, 1)
    j = np.arange(k.shape[2])
    keep = np.ones((len(q), 1, q.shape[2], k.shape[2]), bool)
    left, right = window
    if left is not None:
        keep &= j >= i - left
    if right is not None:
        keep &= j <= i + right
    return keep


def _extended(mask: Array, total: int) -> Array:
    """Rank 4, its last axis filled up with "masked". A mask of rank 3 is (heads, q, kv), one of rank 2 (q, kv)."""
    full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    missing = total - full.shape[-1]
    if missing <= 0:
        return full
    fill: Any = False if mask.dtype == bool else -np.inf
    tail = np.full((*full.shape[:-1], missing), fill, full.dtype)
    return np.concatenate([full, tail], -1)


def _scores(q: Array, k: Array, spec: Any, more: dict[str, Any], mode: int) -> Array:
    """0 raw products, 1 after softcap, 2 after bias, 3 weights (by `compute`, on values of unit vectors)."""
    import compute

    h, m = q.shape[1], k.shape[2]
    if mode == 3:
        eye = np.broadcast_to(np.eye(m, dtype=q.dtype), (len(q), k.shape[1], m, m))
        return np.asarray(compute.attention(q, k, eye, spec, **more))
    root = np.sqrt(spec.scale_value(q.shape[3]))
    wide = np.repeat(k, h // k.shape[1], axis=1)
    dtype = q.dtype.type
    s = (q * dtype(root)) @ (wide * dtype(root)).swapaxes(-1, -2)
    if mode >= 1 and spec.softcap is not None:
        s = (spec.softcap * np.tanh(s / spec.softcap)).astype(q.dtype)
    if mode == 2:
        s = s + _additive(q, k, spec, more)
    return np.asarray(s, dtype=q.dtype)


def _additive(q: Array, k: Array, spec: Any, more: dict[str, Any]) -> Array:
    """The operator's attn_bias: mask, corner, window and lengths as 0 and −inf, and the additive mask."""
    n, m = q.shape[2], k.shape[2]
    total = np.zeros((len(q), 1, n, m))
    if "bias" in more:
        total = total + more["bias"].astype(np.float64)
    if "mask" in more:
        total = np.where(more["mask"], total, -np.inf)
    offset = np.full((len(q), 1, 1, 1), spec.past)
    if "key_lengths" in more:
        lengths = more["key_lengths"].reshape(-1, 1, 1, 1)
        total = np.where(np.arange(m) < lengths, total, -np.inf)
        offset = lengths - n
    i = np.arange(n)[:, None] + offset
    if spec.causal != "none":
        total = np.where(np.arange(m) <= i, total, -np.inf)
    if spec.window is not None:
        left, right = spec.window
        total = total if left is None else np.where(np.arange(m) >= i - left, total, -np.inf)
        total = total if right is None else np.where(np.arange(m) <= i + right, total, -np.inf)
    return total.astype(q.dtype)


def softmax(x: Array, axis: int = -1) -> Array:
    """Softmax along an axis, as attention over unit vectors with the scores as bias."""
    import compute

    moved = np.moveaxis(x, axis, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    n, m = rows.shape
    zero = np.zeros((1, n, 1), x.dtype), np.zeros((1, m, 1), x.dtype)
    out = compute.attention(*zero, np.eye(m, dtype=x.dtype)[None], bias=rows[None])
    return np.moveaxis(np.asarray(out).reshape(moved.shape), -1, axis)


def rotary(inputs: Sequence[Array | None], attributes: Attributes) -> Array:
    """RotaryEmbedding with tables of cosines and sines, by position or one for each token."""
    from compute.rope import turn

    x, cos, sin = inputs[:3]
    assert x is not None
    assert cos is not None
    assert sin is not None
    flat = x.ndim == 3
    y = _heads(x, attributes["num_heads"]) if flat else x
    if len(inputs) > 3 and inputs[3] is not None:
        cos, sin = cos[inputs[3]], sin[inputs[3]]
    dims = attributes.get("rotary_embedding_dim", 0) or y.shape[-1]
    interleaved = bool(attributes.get("interleaved", 0))
    cos, sin = (t[:, None, :, : dims // 2] for t in (cos, sin))
    wide = [np.repeat(t, 2, -1) if interleaved else np.concatenate([t, t], -1) for t in (cos, sin)]
    numpy: Any = np
    layout: Any = "interleaved" if interleaved else "half"
    out = y.copy()
    out[..., :dims] = turn(numpy, y[..., :dims], wide[0], wide[1], layout)
    return out.transpose(0, 2, 1, 3).reshape(x.shape) if flat else out
