"""What a target can be asked, read from its signature, and under which of its own names.

Guarantees: a feature that the signature does not show is never asked for; a feature declared by `--spec` that has no
parameter is taken as built in, and then holds in every call.
Does not: look into a function's body, or guess from its documentation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verify.errors import UsageError

# canonical feature -> names that functions in the wild give it
ALIASES: dict[str, tuple[str, ...]] = {
    "mask": ("mask", "attn_mask", "attention_mask", "key_mask", "bool_mask"),
    "bias": ("bias", "attn_bias", "additive_mask", "score_bias"),
    "causal": ("causal", "is_causal"),
    "scale": ("scale", "softmax_scale", "sm_scale", "scaling"),
    "window": ("window", "window_size", "local_window_size", "sliding_window"),
    "softcap": ("softcap", "soft_cap", "logits_soft_cap", "logit_softcap"),
    "sink": ("sink", "sinks", "s_aux", "sink_logits"),
    "alibi_slopes": ("alibi_slopes", "slopes"),
    "dropout_mask": ("dropout_mask",),
    "key_lengths": ("key_lengths", "kv_lengths", "key_value_seq_lengths", "seqlens_k", "lengths"),
    "lse": ("return_lse", "return_softmax_lse", "return_logsumexp"),
    "dropout": ("dropout_p", "dropout", "dropout_rate"),
    "training": ("training", "is_training"),
    "q_offset": ("q_offset", "query_offset"),
    "k_offset": ("k_offset", "key_offset"),
    "cu_seqlens": ("cu_seqlens", "cu_seqlens_q"),
}
LIBRARIES = ("numpy", "torch", "jax", "cupy")
LAYOUTS = ("bhnd", "bnhd", "thd", "nd")


@dataclass(frozen=True)
class Profile:
    """How to call a target. parameters: canonical feature -> its own name for it. gradients: whether it gives them."""

    name: str = "function"
    like: str = "numpy"
    layout: str = "bhnd"
    device: str = "cpu"
    compiled: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    gradients: bool = False
    grouped: bool = True
    note: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "parameters": dict(self.parameters), "note": list(self.note)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Profile:
        return cls(**{**found, "note": tuple(found["note"])})


def read_parameters(function: Callable[..., Any], renamed: Mapping[str, str]) -> dict[str, str]:
    """canonical feature -> parameter name. The first three positional parameters are q, k, v whatever their names.

    Raises UsageError when the function can't take three arrays, or `renamed` names what it does not have.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return dict(renamed)
    kinds = inspect.Parameter
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 3 and not any(p.kind is kinds.VAR_POSITIONAL for p in parameters):
        shown = ", ".join(p.name for p in parameters)
        raise UsageError(f"the target takes ({shown}): expected a function of at least three arrays, f(q, k, v, ...)")
    extra = [p for p in positional[3:] if p.default is kinds.empty]
    extra += [p for p in parameters if p.kind is kinds.KEYWORD_ONLY and p.default is kinds.empty]
    taken = set(renamed.values())
    names = {p.name for p in parameters if p not in positional[:3]}
    anything = any(p.kind is kinds.VAR_KEYWORD for p in parameters)
    found = {}
    for feature, aliases in ALIASES.items():
        own = next((a for a in aliases if a in names and a not in taken), None)
        if own is not None:
            found[feature] = own
    for feature, own in renamed.items():
        if feature not in ALIASES:
            raise UsageError(f"--arg {feature}={own}: unknown feature; expected one of {', '.join(ALIASES)}")
        if own not in names and not anything:
            raise UsageError(f"--arg {feature}={own}: the target has no parameter {own!r}; it has {sorted(names)}")
        found[feature] = own
    missing = [p.name for p in extra if p.name not in found.values()]
    if missing:
        raise UsageError(
            f"the target needs {', '.join(missing)}, which a check does not know how to give: "
            "give it a default, or map it with --arg FEATURE=NAME"
        )
    return found
