"""The pieces that encoders and decoders share, in float64: normalisations, activations, softmax, heads.

Guarantees: the textbook formulas, one each, on arrays (…, n, d). Written apart from `compute`, so that a study of
`compute` on real data does not feed it with its own output.
Does not: batch ragged sequences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Heads:
    """What one layer's attention is fed: q, k, v of shape (h, n, d_k), the scale, and who may see whom.

    Rotations are applied and shared keys are repeated, so that scores are scale·q·k for every head. layer counts
    from 0. causal: query i reads keys j ≤ i.
    """

    layer: int
    q: Array
    k: Array
    v: Array
    scale: float
    causal: bool

    def scores(self) -> Array:
        """All n×n scores (h, n, n), masked pairs included."""
        s: Array = self.scale * (self.q @ self.k.swapaxes(-1, -2))
        return s

    def visible(self) -> Array:
        """Scores with −inf where a query may not look."""
        s = self.scores()
        return np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf) if self.causal else s

    def output(self) -> Array:
        """softmax(scores) v, heads side by side: (n, h·d_v)."""
        z: Array = softmax(self.visible()) @ self.v
        return z.swapaxes(0, 1).reshape(z.shape[1], -1)


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    weights: Array = e / e.sum(axis=-1, keepdims=True)
    return weights


def layer_norm(x: Array, gain: Array, bias: Array, eps: float) -> Array:
    """Ba, Kiros, Hinton (2016), Layer normalization, equation 4."""
    centred = x - x.mean(axis=-1, keepdims=True)
    normed: Array = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    return normed * gain + bias


def rms_norm(x: Array, gain: Array, eps: float) -> Array:
    """Zhang, Sennrich (2019), Root mean square layer normalization, equation 4."""
    normed: Array = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    return normed * gain


def gelu(x: Array) -> Array:
    """Hendrycks, Gimpel (2016): x Φ(x)."""
    from scipy.special import ndtr

    y: Array = x * ndtr(x)
    return y


def gelu_tanh(x: Array) -> Array:
    """Its tanh approximation, which GPT-2 uses."""
    y: Array = 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return y


def silu(x: Array) -> Array:
    y: Array = x / (1.0 + np.exp(-x))
    return y


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "silu": silu,
    "swish": silu,
    "relu": relu,
}


def split_heads(x: Array, heads: int) -> Array:
    """(n, h·d) → (h, n, d)."""
    n, width = x.shape
    return x.reshape(n, heads, width // heads).swapaxes(0, 1)
