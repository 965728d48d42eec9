"""A BERT encoder (Devlin et al. 2019), post-normalised, absolute positions.

Guarantees: the forward pass of the published architecture, in float64. Does not: pooling, or relative positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from verify.errors import UsageError
from verify.models.blocks import ACTIVATIONS, Array, Heads, layer_norm, split_heads
from verify.models.config import Config
from verify.models.tensors import Tensors

PREFIXES = ("", "bert.", "model.", "roberta.")
MARK = "encoder.layer.0.attention.self.query.weight"


class Bert:
    """tokens (n,) → hidden states (n, d_model), yielding the heads of every layer on the way."""

    def __init__(self, tensors: Tensors, config: Config) -> None:
        self._t = tensors
        self.d_model = tensors.shape(MARK)[1]
        self.heads = config.heads("num_attention_heads")
        if self.d_model % self.heads:
            raise UsageError(f"d_model is {self.d_model}: {self.heads} heads do not divide it; mend --heads")
        self._eps = config.number("layer_norm_eps", 1e-12)
        self._act = ACTIVATIONS[config.word("hidden_act", "gelu", tuple(ACTIVATIONS))]
        config.word("position_embedding_type", "absolute", ("absolute",))
        self.layers = _count(tensors, "encoder.layer.{}.attention.self.query.weight")
        self.vocabulary = tensors.shape("embeddings.word_embeddings.weight")[0]
        self.longest = tensors.shape("embeddings.position_embeddings.weight")[0]

    def forward(self, tokens: npt.NDArray[np.int64]) -> tuple[list[Heads], Array]:
        """Heads of every layer, and the last hidden states."""
        seen: list[Heads] = []
        x = self._embed(tokens)
        for layer, part in self._parts():
            q, k, v = (split_heads(self._linear(x, f"{part}attention.self.{w}"), self.heads) for w in _QKV)
            one = Heads(layer, q, k, v, 1.0 / math.sqrt(q.shape[-1]), causal=False)
            seen.append(one)
            x = self._norm(x + self._linear(one.output(), f"{part}attention.output.dense"), f"{part}attention.output")
            inner = self._act(self._linear(x, f"{part}intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{part}output.dense"), f"{part}output")
        return seen, x

    def _parts(self) -> Iterator[tuple[int, str]]:
        return ((layer, f"encoder.layer.{layer}.") for layer in range(self.layers))

    def _embed(self, tokens: npt.NDArray[np.int64]) -> Array:
        places = np.arange(tokens.size, dtype=np.int64)
        kinds = np.zeros(tokens.size, dtype=np.int64)
        x = self._t.rows("embeddings.word_embeddings.weight", tokens)
        x = x + self._t.rows("embeddings.position_embeddings.weight", places)
        x = x + self._t.rows("embeddings.token_type_embeddings.weight", kinds)
        return self._norm(x, "embeddings")

    def _linear(self, x: Array, name: str) -> Array:
        y: Array = x @ self._t.get(f"{name}.weight").T + self._t.get(f"{name}.bias")
        return y

    def _norm(self, x: Array, name: str) -> Array:
        gain, bias = (self._t.get(f"{name}.LayerNorm.{w}", (self.d_model,)) for w in ("weight", "bias"))
        return layer_norm(x, gain, bias, self._eps)


_QKV = ("query", "key", "value")


def _count(tensors: Tensors, pattern: str) -> int:
    layers = 0
    while pattern.format(layers) in tensors:
        layers += 1
    return layers
