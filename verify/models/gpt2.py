"""A GPT-2 decoder (Radford et al. 2019), pre-normalised, absolute positions, causal.

Guarantees: the forward pass of the published architecture, in float64; weights are stored (in, out).
Does not: the scaling variants by layer index.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from verify.errors import UsageError
from verify.models.bert import _count
from verify.models.blocks import ACTIVATIONS, Array, Heads, layer_norm, split_heads
from verify.models.config import Config
from verify.models.tensors import Tensors

PREFIXES = ("", "transformer.")
MARK = "h.0.attn.c_attn.weight"


class Gpt2:
    """tokens (n,) → hidden states (n, d_model), yielding the heads of every layer on the way."""

    def __init__(self, tensors: Tensors, config: Config) -> None:
        self._t = tensors
        self.d_model = tensors.shape(MARK)[0]
        self.heads = config.heads("n_head", "num_attention_heads")
        if self.d_model % self.heads:
            raise UsageError(f"d_model is {self.d_model}: {self.heads} heads do not divide it; mend --heads")
        if config.values.get("scale_attn_by_inverse_layer_idx"):
            raise UsageError("config.json: scale_attn_by_inverse_layer_idx is set; this forward pass does not know it")
        self._eps = config.number("layer_norm_epsilon", 1e-5)
        self._act = ACTIVATIONS[config.word("activation_function", "gelu_new", tuple(ACTIVATIONS))]
        self.layers = _count(tensors, "h.{}.attn.c_attn.weight")
        self.vocabulary = tensors.shape("wte.weight")[0]
        self.longest = tensors.shape("wpe.weight")[0]

    def forward(self, tokens: npt.NDArray[np.int64]) -> tuple[list[Heads], Array]:
        """Heads of every layer, and the last hidden states."""
        seen: list[Heads] = []
        x = self._t.rows("wte.weight", tokens) + self._t.rows("wpe.weight", np.arange(tokens.size, dtype=np.int64))
        for layer in range(self.layers):
            part = f"h.{layer}."
            qkv = self._linear(self._norm(x, f"{part}ln_1"), f"{part}attn.c_attn")
            q, k, v = (split_heads(w, self.heads) for w in np.split(qkv, 3, axis=-1))
            one = Heads(layer, q, k, v, 1.0 / math.sqrt(q.shape[-1]), causal=True)
            seen.append(one)
            x = x + self._linear(one.output(), f"{part}attn.c_proj")
            inner = self._act(self._linear(self._norm(x, f"{part}ln_2"), f"{part}mlp.c_fc"))
            x = x + self._linear(inner, f"{part}mlp.c_proj")
        return seen, self._norm(x, "ln_f")

    def _linear(self, x: Array, name: str) -> Array:
        y: Array = x @ self._t.get(f"{name}.weight") + self._t.get(f"{name}.bias")
        return y

    def _norm(self, x: Array, name: str) -> Array:
        gain, bias = (self._t.get(f"{name}.{w}", (self.d_model,)) for w in ("weight", "bias"))
        return layer_norm(x, gain, bias, self._eps)
