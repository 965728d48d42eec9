"""jax.nn.dot_product_attention (JAX): layout (batch, tokens, heads, channels)."""

from __future__ import annotations

from typing import Any


def dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
    key_lengths: Any = None,
) -> Any:
    """The function as people call it."""
    import jax

    if v.shape[-1] != q.shape[-1]:
        raise NotImplementedError("JAX takes d_v = d_k only")
    if window is not None and None in window:
        raise NotImplementedError("JAX takes a window of two numbers")
    found: Any = jax.nn.dot_product_attention(
        q,
        k,
        v,
        bias=bias,
        mask=mask,
        is_causal=causal,
        scale=scale,
        local_window_size=window,
        key_value_seq_lengths=key_lengths,
    )
    return found


dot_product_attention.attention_profile = {"layout": "bnhd"}  # type: ignore[attr-defined]
