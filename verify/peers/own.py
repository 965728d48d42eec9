"""The project's own attention as a target; the check's reference shares no code with it."""

from __future__ import annotations

from typing import Any


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    dropout_mask: Any = None,
    key_lengths: Any = None,
    return_lse: bool = False,
) -> Any:
    """`compute.attention` (top-left causal) behind the canonical signature."""
    from compute import Spec
    from compute import attention as own

    spec = Spec(scale=scale, causal=causal, window=window, softcap=softcap)
    more = {"sink": sink, "alibi_slopes": alibi_slopes, "dropout_mask": dropout_mask, "key_lengths": key_lengths}
    return own(q, k, v, spec, mask=mask, bias=bias, return_lse=return_lse, **more)


def backward(
    q: Any,
    k: Any,
    v: Any,
    grad_output: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    causal: bool = False,
    scale: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    dropout_mask: Any = None,
    key_lengths: Any = None,
    grad_lse: Any = None,
) -> Any:
    """`compute.attention_backward` behind the canonical signature: {"q": dq, "k": dk, ...}."""
    from compute import Spec, attention_backward

    spec = Spec(scale=scale, causal=causal, window=window, softcap=softcap)
    more = {"sink": sink, "alibi_slopes": alibi_slopes, "dropout_mask": dropout_mask, "key_lengths": key_lengths}
    found = attention_backward(grad_output, q, k, v, spec, grad_lse=grad_lse, mask=mask, bias=bias, **more)
    pairs = {"q": found.dq, "k": found.dk, "v": found.dv, "bias": found.dbias, "sink": found.dsink}
    return {name: value for name, value in pairs.items() if value is not None}
