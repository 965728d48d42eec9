"""torch.nn.MultiheadAttention (PyTorch) as attention: identity projections, heads in the embedding.

Guarantees: with identity weights and zero biases the module computes softmax(q kᵀ/√d_head)·v by head, so that it can
be held to the same answers; its own choice of path (fast path, flash) is left to it.
Does not: judge trained weights (that is `verify.checking.modules`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=64)
def _module(heads: int, width: int, dtype: Any) -> Any:
    import torch

    # Creating a module draws random weights: the global generator must not move.
    with torch.random.fork_rng():
        module = torch.nn.MultiheadAttention(heads * width, heads, bias=False, batch_first=True, dtype=dtype)
    eye = torch.eye(heads * width, dtype=dtype)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([eye, eye, eye]))
        module.out_proj.weight.copy_(eye)
    return module.eval()


def mha(q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, causal: bool = False) -> Any:
    """The module's output, heads first."""
    b, h, n, d = q.shape
    if v.shape[-1] != d:
        raise NotImplementedError("the module has one head size for keys and values")
    if 0 in (n, k.shape[2]):
        raise NotImplementedError("the module needs at least one token")
    module = _module(h, d, q.dtype)
    flat = [x.transpose(1, 2).reshape(b, -1, h * d) for x in (q, k, v)]
    chosen = None
    if mask is not None:
        chosen = ~mask.expand(b, h, n, k.shape[2]).reshape(b * h, n, k.shape[2])
    elif bias is not None:
        chosen = bias.expand(b, h, n, k.shape[2]).reshape(b * h, n, k.shape[2])
    if mask is not None and bias is not None:
        raise NotImplementedError("the module takes one attn_mask")
    if causal:
        import torch

        later = torch.ones(n, k.shape[2], dtype=torch.bool).triu(1)
        if chosen is None:
            chosen = later
        else:
            chosen = chosen | later if chosen.dtype == torch.bool else chosen.masked_fill(later, float("-inf"))
    out = module(*flat, attn_mask=chosen, need_weights=False)[0]
    return out.reshape(b, n, h, d).transpose(1, 2)
