"""One question put to an implementation, and what came back.

Guarantees: a Call is canonical (heads first, boolean mask with True = the key takes part, Spec as meaning), so that
the reference, the tolerance and every adapter read the same thing. Arrays of a Call are never handed to a target
themselves, only copies.
Does not: know any array library, or any target's own names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from compute.spec import Spec

Array = np.ndarray[Any, Any]
Memory = Literal["contiguous", "strided", "reversed", "transposed", "expanded", "readonly"]
ARRAYS = (
    "q",
    "k",
    "v",
    "mask",
    "bias",
    "sink",
    "alibi_slopes",
    "dropout_mask",
    "key_lengths",
    "grad_output",
    "grad_lse",
)

EXTRAS = ("mask", "bias", "sink", "alibi_slopes", "dropout_mask", "key_lengths")


@dataclass(frozen=True, eq=False)
class Call:
    """q (b, h, n, d_k), k (b, h_kv, m, d_k), v (b, h_kv, m, d_v), and what `spec` says of them.

    mask: boolean, broadcastable to (b, h, n, m), True = the key takes part. bias: additive, same shapes; −inf masks.
    sink: (h,). alibi_slopes: (h,). dropout_mask: multipliers of the
    weights. key_lengths: (b,). grad_output: cotangent of the output; asks for gradients.
    lse: the log-sum-exp is wanted too. scale_given: the scale is passed, not left to the target's default.
    scale_gradient: the scale is passed as an array, and its gradient is wanted too.
    memory: how an array lies in memory when the target sees it. options: further keywords, passed as they are.
    """

    q: Array
    k: Array
    v: Array
    spec: Spec = field(default_factory=Spec)
    mask: Array | None = None
    bias: Array | None = None
    sink: Array | None = None
    alibi_slopes: Array | None = None
    dropout_mask: Array | None = None
    key_lengths: Array | None = None
    grad_output: Array | None = None
    grad_lse: Array | None = None
    lse: bool = False
    scale_gradient: bool = False
    memory: tuple[tuple[str, Memory], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def with_(self, **changes: Any) -> Call:
        return replace(self, **changes)

    def arrays(self) -> dict[str, Array]:
        """The arrays that are present, by name."""
        return {name: value for name in ARRAYS if (value := getattr(self, name)) is not None}

    @property
    def shape(self) -> tuple[int, int, int, int, int, int, int]:
        """(b, h, h_kv, n, m, d_k, d_v)."""
        b, h, n, d_k = self.q.shape
        return b, h, self.k.shape[1], n, self.k.shape[2], d_k, self.v.shape[3]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.q.dtype

    @property
    def features(self) -> frozenset[str]:
        """What the target must be able to be asked, by canonical name."""
        spec = self.spec
        found = {n for n in EXTRAS if getattr(self, n) is not None}
        asked = {
            "causal": spec.causal != "none",
            "scale": spec.scale is not None,
            "window": spec.window is not None,
            "softcap": spec.softcap is not None,
            "rope": spec.rope is not None,
            "past": spec.past != 0,
            "lse": self.lse or self.grad_lse is not None,
            "grad": self.grad_output is not None or self.grad_lse is not None,
            "groups": self.q.shape[1] != self.k.shape[1],
        }
        return frozenset(found | {name for name, wanted in asked.items() if wanted} | {n for n, _ in self.options})


@dataclass(frozen=True, eq=False)
class Reply:
    """What a target gave. Exactly one of `output` and `fault` is set.

    gradients: by the name of the array they belong to. fault: "raises", "hang", "died", "memory", "type".
    mutated: names of inputs whose bytes changed. state: global state that changed (random seed, error flags, ...).
    """

    output: Array | None = None
    lse: Array | None = None
    gradients: dict[str, Array] = field(default_factory=dict)
    fault: str | None = None
    message: str = ""
    mutated: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    seconds: float = 0.0


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype called `name`; bfloat16 and the fp8 formats come from ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def lay_out(array: Array, memory: Memory) -> Array:
    """A fresh copy of `array`, equal in value, that lies in memory as asked."""
    if memory == "contiguous" or array.ndim == 0:
        return np.array(array, order="C")
    if memory == "strided":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if memory == "reversed":
        return np.array(array[..., ::-1], order="C")[..., ::-1]
    if memory == "transposed" and array.ndim > 1:
        return np.array(np.swapaxes(array, -1, -2), order="C").swapaxes(-1, -2)
    if memory == "expanded" and array.ndim > 1:
        first = np.array(array[..., :1, :], order="C")
        return np.broadcast_to(first, array.shape)
    copy = np.array(array, order="C")
    copy.setflags(write=memory != "readonly")
    return copy
