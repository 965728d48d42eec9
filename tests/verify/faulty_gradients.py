"""Faulty backward passes: the forward pass is right. See `faulty`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.verify.faulty import ALL, FAULTS, Fault, attend, corner, lse_of, masked, repeated, scores, softmax, wide


def forward(q, k, v, *, mask=None, bias=None, causal=False, softcap=None, return_lse=False):  # type: ignore[no-untyped-def]
    s = logits(q, k, mask, bias, causal, softcap)[0]
    out = attend(s, v)
    return (out, lse_of(s)) if return_lse else out


def logits(q: Any, k: Any, mask: Any, bias: Any, causal: bool, softcap: Any) -> tuple[np.ndarray, np.ndarray]:
    s = scores(q, k)
    slope = np.ones_like(s)
    if softcap is not None:
        t = np.tanh(s / s.dtype.type(softcap))
        s, slope = s.dtype.type(softcap) * t, 1 - t * t
    if bias is not None:
        s = s + wide(bias)
    return corner(masked(s, mask), causal), slope


def backward(
    q: Any, k: Any, v: Any, g: Any, *, mask: Any = None, bias: Any = None, causal: bool = False, softcap: Any = None,
    grad_lse: Any = None, wrong: str = "",
) -> dict[str, np.ndarray]:  # fmt: skip
    """A right backward pass, unless `wrong` says otherwise."""
    s, slope = logits(q, k, mask, bias, causal, softcap)
    p, h = softmax(s), q.shape[1]
    do, kk, vv = wide(g), repeated(wide(k), h), repeated(wide(v), h)
    if wrong == "strides" and not g.flags.c_contiguous and g.ndim == 4:
        flat = (
            np.lib.stride_tricks.as_strided(g, (int(g.size),), (g.itemsize,)) if 0 not in g.strides else g.ravel() * 2
        )
        do = wide(np.array(flat).reshape(g.shape)) if g.strides[-1] != 2 * g.itemsize else wide(g)[..., ::-1]
    dp = do @ vv.swapaxes(-1, -2)
    delta = (p * dp).sum(-1, keepdims=True)
    if wrong == "no delta":
        delta = delta * 0
    if grad_lse is not None and wrong != "lse":
        delta = delta - wide(grad_lse)[..., None]
    ds = p * (dp - delta)
    if wrong == "padding" and s.shape[-1] % 128 == 64:
        with np.errstate(over="ignore", invalid="ignore"):
            ds = ds + 0 * np.exp(-np.maximum(lse_of(s), -200))[..., None].astype(np.float32)
    if wrong == "ragged" and s.shape[-1] % 128 not in (0, *range(1, 127)):
        ds = ds * np.nan
    if wrong == "large" and np.abs(s).max(initial=0) > 5e3:
        ds = ds * np.nan
    if wrong == "empty" and mask is not None:
        with np.errstate(invalid="ignore"):
            ds = np.where(np.isneginf(s).all(-1, keepdims=True), np.nan, ds)
    inner = ds if wrong == "softcap" else ds * slope
    tau = np.float32(q.shape[-1] ** -0.5)
    if wrong == "scale":
        tau = np.float32(1)
    dq, dk, dv = tau * (inner @ kk), tau * (inner.swapaxes(-1, -2) @ wide(q)), p.swapaxes(-1, -2) @ do
    if wrong == "sign":
        dq = -dq
    if wrong == "zero":
        dq = dq * 0
    if h != k.shape[1]:
        shape = (len(k), k.shape[1], h // k.shape[1], *dk.shape[2:])
        if wrong == "groups":
            dk, dv = dk.reshape(shape)[:, :, 0], dv.reshape(*shape[:-1], dv.shape[-1])[:, :, 0]
        else:
            dk, dv = dk.reshape(shape).sum(2), dv.reshape(*shape[:-1], dv.shape[-1]).sum(2)
    found = {"q": dq.astype(q.dtype), "k": dk.astype(k.dtype), "v": dv.astype(v.dtype)}
    if bias is not None:
        axes = tuple(i for i in range(4) if bias.shape[i] == 1 and ds.shape[i] != 1)
        summed = ds[..., :1, :] if wrong == "broadcast" and 2 in axes else ds
        summed = summed.sum(tuple(a for a in axes if a < summed.ndim), keepdims=True)
        summed = np.where(q.itemsize < 4, np.nan, summed) if wrong == "mixed" else summed
        found["bias"] = summed.astype(bias.dtype)
    return found


def add(name: str, row: int, *kinds: str, spec: str | None = None, dtypes: tuple[str, ...] = ALL) -> None:
    def run(q: Any, k: Any, v: Any, g: Any, **more: Any) -> Any:
        return backward(q, k, v, g, wrong=name, **more)

    FAULTS.append(Fault(f"gradient: {name}", row, kinds, forward, spec, dtypes, run))


add("sign", 72, "gradient")
add("zero", 72, "gradient")
add("no delta", 72, "gradient")
add("scale", 72, "gradient")
add("mixed", 73, "bias gradient", dtypes=("float16", "bfloat16"))
add("broadcast", 74, "bias gradient")
add("large", 75, "gradient", dtypes=("float32", "bfloat16"))
add("padding", 76, "ragged tile", "no max shift", dtypes=("float32", "bfloat16"))
add("strides", 77, "strides")
add("ragged", 79, "ragged tile")
add("empty", 71, "empty row")
add("softcap", 102, "softcap gradient")
add("lse", 103, "LSE gradient")
add("groups", 26, "GQA gradient", spec="groups=2")


def dropout_forward(q, k, v, *, dropout_mask=None):  # type: ignore[no-untyped-def]
    p = softmax(scores(q, k))
    return ((p if dropout_mask is None else p * wide(dropout_mask)) @ wide(v)).astype(v.dtype)


def dropout_backward(q, k, v, g, *, dropout_mask=None):  # type: ignore[no-untyped-def]
    """The factor 1/(1 − p) of the forward pass is read as 1 − p."""
    p, do = softmax(scores(q, k)), wide(g)
    drop = np.ones_like(p) if dropout_mask is None else wide(dropout_mask)
    wrong = np.where(drop > 0, 1 / np.where(drop > 0, drop, 1), 0) * (drop > 0)
    dp = (do @ wide(v).swapaxes(-1, -2)) * wrong
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * np.float32(q.shape[-1] ** -0.5)
    dv = (p * wrong).swapaxes(-1, -2) @ do
    return [x.astype(q.dtype) for x in (ds @ wide(k), ds.swapaxes(-1, -2) @ wide(q), dv)]


FAULTS.append(Fault("dropout backward", 60, ("dropout",), dropout_forward, None, ALL, dropout_backward))


def packed_forward(q, k, v, *, cu_seqlens=None):  # type: ignore[no-untyped-def]
    """(tokens, heads, d), sequences by cumulative lengths."""
    out = np.empty_like(v)
    for a, b in itertools.pairwise(cu_seqlens):
        part = [x[a:b].swapaxes(0, 1)[None] for x in (q, k, v)]
        out[a:b] = attend(scores(part[0], part[1]), part[2])[0].swapaxes(0, 1)
    return out


def packed_backward(q, k, v, g, *, cu_seqlens=None):  # type: ignore[no-untyped-def]
    """dV of the second sequence takes the first one's rows."""
    found = [np.empty_like(x) for x in (q, k, v)]
    for a, b in itertools.pairwise(cu_seqlens):
        part = [x[a:b].swapaxes(0, 1)[None] for x in (q, k, v)]
        grads = backward(*part, g[: b - a].swapaxes(0, 1)[None])
        for whole, name in zip(found, ("q", "k", "v"), strict=True):
            whole[a:b] = grads[name][0].swapaxes(0, 1)
    return found


FAULTS.append(
    Fault("packed backward", 104, ("packed gradient", "gradient"), packed_forward, None, ALL, packed_backward, "thd")
)


# -- the gradient of the scale, and gradients under RoPE -------------------------------------------------------------


def scaled_forward(q, k, v, *, mask=None, bias=None, causal=False, softcap=None, scale=None):  # type: ignore[no-untyped-def]
    s = wide(q) @ repeated(wide(k), q.shape[1]).swapaxes(-1, -2)
    s = s * s.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        s = s.dtype.type(softcap) * np.tanh(s / s.dtype.type(softcap))
    s = s if bias is None else s + wide(bias)
    return attend(corner(masked(s, mask), causal), v)


def scaled_backward(
    q: Any, k: Any, v: Any, g: Any, *, mask: Any = None, bias: Any = None, causal: bool = False, softcap: Any = None,
    scale: Any = None, wrong: str = "",
) -> dict[str, np.ndarray]:  # fmt: skip
    """Gradients of q, k, v, bias and scale; right, unless `wrong` says otherwise of the scale's."""
    t = np.float64(q.shape[-1] ** -0.5 if scale is None else scale)
    qq, kk, vv, do = (x.astype(np.float64) for x in (q, repeated(k, q.shape[1]), repeated(v, q.shape[1]), g))
    product = qq @ kk.swapaxes(-1, -2)
    s, slope = t * product, np.ones_like(product)
    if softcap is not None:
        slope = 1 - np.tanh(s / softcap) ** 2
        s = softcap * np.tanh(s / softcap)
    s = s if bias is None else s + bias.astype(np.float64)
    p = softmax(corner(masked(s, mask), causal))
    dp = do @ vv.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    inner = ds * slope
    terms = inner * product
    if wrong == "of scaled scores":
        terms = inner * t * product
    elif wrong == "without the softcap's slope":
        terms = ds * product
    elif wrong == "of the first head":
        terms = terms[:, :1]
    elif wrong == "without delta":
        terms = p * dp * slope * product
    found = {"q": t * inner @ kk, "k": t * inner.swapaxes(-1, -2) @ qq, "v": p.swapaxes(-1, -2) @ do}
    found = {name: x.astype(q.dtype) for name, x in found.items()}
    if bias is not None:
        axes = tuple(i for i in range(4) if bias.shape[i] == 1 and ds.shape[i] != 1)
        found["bias"] = ds.sum(axes, keepdims=True).astype(bias.dtype)
    return {**found, "scale": np.asarray(terms.sum() * (0 if wrong == "zero" else 1)).astype(q.dtype)}


def turned(x: Any, offset: int, back: bool = False) -> np.ndarray:
    """Rotary embedding in halves, in float64; or its transpose."""
    d = x.shape[-1] // 2
    if x.shape[-1] % 2:
        raise NotImplementedError("an odd head size can't be rotated in pairs")
    angle = (np.arange(x.shape[-2]) + offset)[:, None] * 10000.0 ** (-np.arange(d) / max(d, 1))
    cos, sin = np.cos(angle), np.sin(angle) * (-1 if back else 1)
    a, b = (y.astype(np.float64) for y in (x[..., :d], x[..., d:]))
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def turned_forward(q, k, v, *, mask=None, q_offset=0, k_offset=0):  # type: ignore[no-untyped-def]
    s = turned(q, q_offset) @ turned(k, k_offset).swapaxes(-1, -2) * q.shape[-1] ** -0.5
    return (softmax(masked(s, mask)) @ v.astype(np.float64)).astype(v.dtype)


def turned_backward(
    q: Any, k: Any, v: Any, g: Any, *, mask: Any = None, q_offset: int = 0, k_offset: int = 0, wrong: str = ""
) -> list[np.ndarray]:
    """dQ, dK, dV under rotary embeddings; right, unless `wrong` says otherwise."""
    t, qq, kk = q.shape[-1] ** -0.5, turned(q, q_offset), turned(k, k_offset)
    p, do = softmax(masked(t * qq @ kk.swapaxes(-1, -2), mask)), g.astype(np.float64)
    dp = do @ v.astype(np.float64).swapaxes(-1, -2)
    ds = t * p * (dp - (p * dp).sum(-1, keepdims=True))
    dq, dk = ds @ kk, ds.swapaxes(-1, -2) @ qq
    if wrong == "not rotated back":
        return [x.astype(q.dtype) for x in (dq, dk, p.swapaxes(-1, -2) @ do)]
    k_start = 0 if wrong == "keys rotated back from 0" else k_offset
    back = wrong != "rotated on"
    dq, dk = turned(dq, q_offset, back), turned(dk, k_start, back)
    if wrong == "queries only":
        dk = turned(dk, k_offset)
    return [x.astype(q.dtype) for x in (dq, dk, p.swapaxes(-1, -2) @ do)]


def plain_forward(q, k, v):  # type: ignore[no-untyped-def]
    return attend(scores(q, k), v)


def tiled_backward(q: Any, k: Any, v: Any, g: Any) -> list[np.ndarray]:
    """dQ summed over tiles of keys in an order by chance, as atomic additions are."""
    p, do = softmax(scores(q, k)), wide(g)
    dp = do @ wide(v).swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * np.float32(q.shape[-1] ** -0.5)
    dq = np.zeros(q.shape, np.float32)
    starts = np.arange(0, k.shape[2], 32)
    for a in np.random.default_rng().permutation(starts):
        dq = dq + (ds[..., a : a + 32] @ wide(k)[:, :, a : a + 32]).astype(np.float32)
    return [x.astype(q.dtype) for x in (dq, ds.swapaxes(-1, -2) @ wide(q), p.swapaxes(-1, -2) @ do)]


def _with_scale(name: str) -> None:
    def run(q: Any, k: Any, v: Any, g: Any, **more: Any) -> Any:
        return scaled_backward(q, k, v, g, wrong=name, **more)

    FAULTS.append(Fault(f"gradient of scale: {name}", 0, ("scale gradient",), scaled_forward, None, ALL, run))


def _with_rope(name: str, *kinds: str) -> None:
    def run(q: Any, k: Any, v: Any, g: Any, **more: Any) -> Any:
        return turned_backward(q, k, v, g, wrong=name, **more)

    kinds = kinds or ("RoPE gradient",)
    FAULTS.append(Fault(f"gradient under RoPE: {name}", 0, kinds, turned_forward, "rope=half", ALL, run))


for _name in ("of scaled scores", "without the softcap's slope", "of the first head", "without delta", "zero"):
    _with_scale(_name)
for _name in ("not rotated back", "rotated on", "keys rotated back from 0", "queries only"):
    _with_rope(_name)
# In 16 bits the last rounding hides most orders of float32 sums.
FAULTS.append(
    Fault(
        "backward in an order by chance",
        78,
        ("determinism",),
        plain_forward,
        "deterministic=yes",
        ("float32",),
        tiled_backward,
    )
)
