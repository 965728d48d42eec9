"""torch.nn.functional.scaled_dot_product_attention (PyTorch), by whichever backend it chooses, or by a named one."""

from __future__ import annotations

from typing import Any


def sdpa(
    q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, causal: bool = False, scale: float | None = None
) -> Any:
    """The function as people call it: one attn_mask, boolean or additive, or is_causal."""
    from torch.nn.functional import scaled_dot_product_attention

    if bias is not None and mask is not None:
        bias = bias.masked_fill(~mask, float("-inf"))
    chosen = bias if bias is not None else mask
    if causal and chosen is not None:
        raise NotImplementedError("torch takes attn_mask or is_causal, not both")
    grouped = q.shape[-3] != k.shape[-3]
    return scaled_dot_product_attention(q, k, v, attn_mask=chosen, is_causal=causal, scale=scale, enable_gqa=grouped)


def _under(backend: str, *args: Any, **options: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return sdpa(*args, **options)


def sdpa_math(
    q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, causal: bool = False, scale: float | None = None
) -> Any:
    """The math backend."""
    return _under("MATH", q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)


def sdpa_flash(
    q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, causal: bool = False, scale: float | None = None
) -> Any:
    """The flash backend; what it can't do it refuses."""
    if q.shape[-1] != v.shape[-1] or q.shape[-2] == 0 or k.shape[-2] == 0:
        raise NotImplementedError("the flash backend needs d_v = d_k and at least one token")
    return _under("FLASH_ATTENTION", q, k, v, mask=mask, bias=bias, causal=causal, scale=scale)
