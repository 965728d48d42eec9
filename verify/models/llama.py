"""A Llama decoder (Touvron et al. 2023): RMS norms, rotary positions, grouped keys, gated MLP, causal.

Guarantees: the forward pass of the published architecture, in float64; rotation pairs channel c with c + d/2.
Does not: rescaled rotary bases (refused), sliding windows, experts.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from verify.errors import UsageError
from verify.models.bert import _count
from verify.models.blocks import Array, Heads, rms_norm, silu, split_heads
from verify.models.config import Config
from verify.models.tensors import Tensors

PREFIXES = ("", "model.")
MARK = "layers.0.self_attn.q_proj.weight"


class Llama:
    """tokens (n,) → hidden states (n, d_model), yielding the heads of every layer on the way."""

    def __init__(self, tensors: Tensors, config: Config) -> None:
        self._t = tensors
        width, self.d_model = tensors.shape(MARK)
        self.heads = config.heads("num_attention_heads")
        if width % self.heads or (width // self.heads) % 2:
            raise UsageError(f"q_proj has {width} rows: {self.heads} heads of an even d_k do not fit; mend --heads")
        self.d_k = width // self.heads
        kv_width = tensors.shape("layers.0.self_attn.k_proj.weight")[0]
        self.kv_heads = config.kv_heads("num_key_value_heads", kv_width // self.d_k)
        if self.kv_heads * self.d_k != kv_width or self.heads % self.kv_heads:
            raise UsageError(
                f"k_proj has {kv_width} rows for {self.kv_heads} key-value heads of d_k = {self.d_k} and {self.heads} "
                "query heads: they do not fit; mend --heads or --kv-heads"
            )
        if config.values.get("rope_scaling"):
            raise UsageError("config.json: rope_scaling is set; this forward pass knows the plain rotation only")
        config.word("hidden_act", "silu", ("silu", "swish"))
        self._eps = config.number("rms_norm_eps", 1e-6)
        self._base = config.number("rope_theta", 10000.0)
        self.layers = _count(tensors, "layers.{}.self_attn.q_proj.weight")
        self.vocabulary = tensors.shape("embed_tokens.weight")[0]
        self.longest = int(config.number("max_position_embeddings", 2048))

    def forward(self, tokens: npt.NDArray[np.int64]) -> tuple[list[Heads], Array]:
        """Heads of every layer, and the last hidden states."""
        seen: list[Heads] = []
        x = self._t.rows("embed_tokens.weight", tokens)
        for layer in range(self.layers):
            part = f"layers.{layer}."
            y = self._norm(x, f"{part}input_layernorm")
            q = rotate(split_heads(self._linear(y, f"{part}self_attn.q_proj"), self.heads), self._base)
            k = rotate(split_heads(self._linear(y, f"{part}self_attn.k_proj"), self.kv_heads), self._base)
            v = split_heads(self._linear(y, f"{part}self_attn.v_proj"), self.kv_heads)
            k, v = (np.repeat(a, self.heads // self.kv_heads, axis=0) for a in (k, v))
            one = Heads(layer, q, k, v, 1.0 / math.sqrt(self.d_k), causal=True)
            seen.append(one)
            x = x + self._linear(one.output(), f"{part}self_attn.o_proj")
            y = self._norm(x, f"{part}post_attention_layernorm")
            inner = silu(self._linear(y, f"{part}mlp.gate_proj")) * self._linear(y, f"{part}mlp.up_proj")
            x = x + self._linear(inner, f"{part}mlp.down_proj")
        return seen, self._norm(x, "norm")

    def _linear(self, x: Array, name: str) -> Array:
        y: Array = x @ self._t.get(f"{name}.weight").T
        return y + self._t.get(f"{name}.bias") if f"{name}.bias" in self._t else y

    def _norm(self, x: Array, name: str) -> Array:
        return rms_norm(x, self._t.get(f"{name}.weight", (self.d_model,)), self._eps)


def rotate(x: Array, base: float) -> Array:
    """Turn channels (c, c + d/2) of position t by the angle t·base^(−2c/d); x is (h, n, d)."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
