"""Layers around attention: self-attention from x with gradients to all weights, a residual block, RNN and LSTM cells.

Guarantees: each backward is the vector-Jacobian product of its forward, gradient by gradient, by closed formulas;
nothing but compute.attention computes attention.
Does not: train, normalise, or carry biases in the projections.

Sources: Vaswani et al. 2017, section 3.2.2 (heads) and 3.1 (residual); Elman 1990 (RNN); Hochreiter and Schmidhuber
1997 with the forget gate of Gers et al. 2000 (LSTM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compute.arrays import Array, Namespace, namespace
from compute.calls import Gradients, attention, attention_backward
from compute.checks import floating, whole
from compute.errors import InputError
from compute.spec import Spec


@dataclass(frozen=True)
class LayerGradients:
    """Gradients by x and the weights (dwo is None without wo), and those of the attention inside."""

    dx: Array
    dwq: Array
    dwk: Array
    dwv: Array
    dwo: Array | None
    inner: Gradients


def self_attention(
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    wo: Array | None = None,
    *,
    heads: int,
    key_value_heads: int | None = None,
    spec: Spec = Spec(),
    **arguments: Any,
) -> Array:
    """Attention of x (…, n, d_model) over itself: Q = x W^Q, K = x W^K, V = x W^V, heads side by side, then W^O.

    wq (d_model, h·d_k), wk (d_model, h_kv·d_k), wv (d_model, h_kv·d_v), wo (h·d_v, d_out) or None. Returns
    (…, n, d_out), or (…, n, h·d_v) without wo. arguments: those of compute.attention (mask, bias, …).

    Raises InputError for weights that don't fit.
    """
    q, k, v = _project(x, wq, wk, wv, wo, heads, key_value_heads)
    joined = _join(attention(q, k, v, spec, **arguments))
    return joined if wo is None else joined @ wo


def self_attention_backward(
    grad_output: Array,
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    wo: Array | None = None,
    *,
    heads: int,
    key_value_heads: int | None = None,
    spec: Spec = Spec(),
    **arguments: Any,
) -> LayerGradients:
    """Gradients of Σ grad_output · self_attention(…) by x and every weight."""
    q, k, v = _project(x, wq, wk, wv, wo, heads, key_value_heads)
    floating(x=x, grad_output=grad_output)
    width = heads * int(v.shape[-1]) if wo is None else int(wo.shape[1])
    if tuple(grad_output.shape) != (*x.shape[:-1], width):
        raise InputError(f"grad_output has shape {tuple(grad_output.shape)}: expected {(*x.shape[:-1], width)}")
    dwo, grad = None, grad_output
    if wo is not None:
        dwo = _outer(_join(attention(q, k, v, spec, **arguments)), grad_output)
        grad = grad_output @ wo.T
    inner = attention_backward(_split(grad, heads), q, k, v, spec, **arguments)
    dq, dk, dv = _join(inner.dq), _join(inner.dk), _join(inner.dv)
    dx = dq @ wq.T + dk @ wk.T + dv @ wv.T
    return LayerGradients(dx, _outer(x, dq), _outer(x, dk), _outer(x, dv), dwo, inner)


def residual_block(x: Array, *weights: Array | None, heads: int, spec: Spec = Spec(), **arguments: Any) -> Array:
    """x + self_attention(x, *weights): the residual connection, without normalisation."""
    added = self_attention(x, *_four(weights), heads=heads, spec=spec, **arguments)
    if added.shape != x.shape:
        raise InputError(f"attention gives {tuple(added.shape)}, x has {tuple(x.shape)}: a residual needs them equal")
    return x + added


def residual_block_backward(
    grad_output: Array, x: Array, *weights: Array | None, heads: int, spec: Spec = Spec(), **arguments: Any
) -> LayerGradients:
    """Gradients of `residual_block`: the identity's beside those of self-attention."""
    g = self_attention_backward(grad_output, x, *_four(weights), heads=heads, spec=spec, **arguments)
    return LayerGradients(g.dx + grad_output, g.dwq, g.dwk, g.dwv, g.dwo, g.inner)


def rnn_cell(x: Array, h: Array, w: Array, u: Array, b: Array) -> Array:
    """tanh(x W + h U + b): x (…, d_in), h (…, d), w (d_in, d), u (d, d), b (d,)."""
    xp = _cell(x, h, w, u, b, 1)
    return xp.tanh(x @ w + h @ u + b)


def rnn_cell_backward(grad: Array, x: Array, h: Array, w: Array, u: Array, b: Array) -> tuple[Array, ...]:
    """(dx, dh, dw, du, db) of Σ grad · rnn_cell(…)."""
    new = rnn_cell(x, h, w, u, b)
    _like(h, grad=grad)
    inner = grad * (1 - new * new)
    return inner @ w.T, inner @ u.T, _outer(x, inner), _outer(h, inner), _over_rows(inner)


def lstm_cell(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> tuple[Array, Array]:
    """(h', c'): c' = f∘c + i∘g, h' = o∘tanh(c'), gates i, f, o = σ(·), g = tanh(·) of x W + h U + b, in order i f g o.

    x (…, d_in), h, c (…, d), w (d_in, 4d), u (d, 4d), b (4d,).
    """
    i, f, g, o = _gates(x, h, w, u, b)
    _like(h, c=c)
    new = f * c + i * g
    return o * namespace(x=x).tanh(new), new


def lstm_cell_backward(
    grad_h: Array, grad_c: Array, x: Array, h: Array, c: Array, w: Array, u: Array, b: Array
) -> tuple[Array, ...]:
    """(dx, dh, dc, dw, du, db) of Σ grad_h·h' + Σ grad_c·c'."""
    xp = namespace(x=x)
    i, f, g, o = _gates(x, h, w, u, b)
    _like(h, grad_h=grad_h, grad_c=grad_c, c=c)
    t = xp.tanh(f * c + i * g)
    new = grad_c + grad_h * o * (1 - t * t)
    gates = [new * g * i * (1 - i), new * c * f * (1 - f), new * i * (1 - g * g), grad_h * t * o * (1 - o)]
    inner = xp.concatenate(gates, axis=-1)
    return inner @ w.T, inner @ u.T, new * f, _outer(x, inner), _outer(h, inner), _over_rows(inner)


# -- pieces ---------------------------------------------------------------------------------------------------------


def _four(weights: tuple[Array | None, ...]) -> tuple[Any, ...]:
    if len(weights) not in (3, 4):
        raise InputError(f"{len(weights)} weights: expected wq, wk, wv and, where there is one, wo")
    return weights


def _split(x: Array, heads: int) -> Array:
    """(…, n, h·d) as (…, h, n, d)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-2, -3)


def _join(x: Array) -> Array:
    """(…, h, n, d) as (…, n, h·d)."""
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _outer(x: Array, grad: Array) -> Array:
    """Σ over all rows of xᵀ grad."""
    return x.reshape(-1, x.shape[-1]).T @ grad.reshape(-1, grad.shape[-1])


def _over_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1]).sum(axis=0)


def _project(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array | None, heads: int, key_value_heads: int | None
) -> tuple[Array, Array, Array]:
    floating(x=x, wq=wq, wk=wk, wv=wv)
    if wo is not None:
        floating(x=x, wo=wo)
    heads = whole("heads", heads, 1, "a number of heads")
    kv = heads if key_value_heads is None else whole("key_value_heads", key_value_heads, 1, "a number of heads")
    if x.ndim < 2:
        raise InputError(f"x has shape {tuple(x.shape)}: expected (…, n, d_model)")
    for name, w, count in (("wq", wq, heads), ("wk", wk, kv), ("wv", wv, kv)):
        if w.ndim != 2 or w.shape[0] != x.shape[-1] or w.shape[1] % count:
            raise InputError(
                f"{name} has shape {tuple(w.shape)}: expected ({x.shape[-1]}, a multiple of {count} heads)"
            )
    if wo is not None and (wo.ndim != 2 or wo.shape[0] != wv.shape[1] // kv * heads):
        raise InputError(f"wo has shape {tuple(wo.shape)}: expected ({wv.shape[1] // kv * heads}, d_out), h·d_v rows")
    return _split(x @ wq, heads), _split(x @ wk, kv), _split(x @ wv, kv)


def _cell(x: Array, h: Array, w: Array, u: Array, b: Array, gates: int) -> Namespace:
    xp = floating(x=x, h=h, w=w, u=u, b=b)
    if not x.ndim or not h.ndim or x.shape[:-1] != h.shape[:-1]:
        raise InputError(f"x has shape {tuple(x.shape)}, h {tuple(h.shape)}: expected (…, d_in) and (…, d)")
    d = int(h.shape[-1])
    wants = {"w": (int(x.shape[-1]), gates * d), "u": (d, gates * d), "b": (gates * d,)}
    for name, array in (("w", w), ("u", u), ("b", b)):
        if tuple(array.shape) != wants[name]:
            raise InputError(f"{name} has shape {tuple(array.shape)}: expected {wants[name]}")
    return xp


def _like(h: Array, **arrays: Array) -> None:
    """InputError unless every array is floating and of h's shape."""
    floating(h=h, **arrays)
    for name, array in arrays.items():
        if array.shape != h.shape:
            raise InputError(f"{name} has shape {tuple(array.shape)}: expected {tuple(h.shape)}, that of h")


def _gates(x: Array, h: Array, w: Array, u: Array, b: Array) -> tuple[Array, ...]:
    xp = _cell(x, h, w, u, b, 4)
    d = h.shape[-1]
    z = x @ w + h @ u + b
    # σ(z) = (1 + tanh(z/2))/2 neither overflows nor cancels near either end.
    squash = [(1 + xp.tanh(z[..., s * d : (s + 1) * d] / 2)) / 2 for s in (0, 1, 3)]
    return squash[0], squash[1], xp.tanh(z[..., 2 * d : 3 * d]), squash[2]
