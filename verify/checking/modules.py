"""An attention module with its weights: projections, heads, output projection, and gradients to the weights.

Guarantees: the module's output and its gradients (input, W^Q, W^K, W^V, W^O and biases) are held against the formulas
in long double, each within an a-priori bound of the composed matrix products for the module's dtype.
Does not: judge dropout (the module is put in evaluation mode) or other submodules; modules are taken as
torch.nn.MultiheadAttention lays its weights out.

Source: Vaswani et al. 2017, section 3.2.2; weights as in torch.nn.MultiheadAttention's documentation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.checking.calls import Array
from verify.checking.libraries import as_numpy, library
from verify.checking.reference import Wide
from verify.checking.result import CheckResult, Finding
from verify.checking.values import worst
from verify.errors import UsageError


@dataclass(frozen=True, eq=False)
class Weights:
    """W^Q, W^K, W^V (d_model, d_model) as y = x Wᵀ + b, W^O, and their biases."""

    wq: Array
    wk: Array
    wv: Array
    wo: Array
    bq: Array
    bk: Array
    bv: Array
    bo: Array


def weights_of_mha(module: Any) -> Weights:
    """The weights of a torch.nn.MultiheadAttention. Raises UsageError for another layout."""
    if getattr(module, "in_proj_weight", None) is None or not hasattr(module, "out_proj"):
        raise UsageError("expected torch.nn.MultiheadAttention with in_proj_weight (equal widths of q, k, v)")
    if getattr(module, "bias_k", None) is not None or getattr(module, "add_zero_attn", False):
        raise UsageError("bias_k and add_zero_attn are not covered")
    w = as_numpy(module.in_proj_weight)
    d = w.shape[1]
    b = np.zeros(3 * d, w.dtype) if module.in_proj_bias is None else as_numpy(module.in_proj_bias)
    bo = np.zeros(d, w.dtype) if module.out_proj.bias is None else as_numpy(module.out_proj.bias)
    return Weights(
        w[:d], w[d : 2 * d], w[2 * d :], as_numpy(module.out_proj.weight), b[:d], b[d : 2 * d], b[2 * d :], bo
    )


def check_module(
    module: Any, *, weights_of: Any = None, batch: int = 2, length: int = 7, causal: bool = False, seed: int = 0
) -> CheckResult:
    """Judge a torch.nn.MultiheadAttention (or what is called like one, with `weights_of` a module that holds its
    weights) on self-attention, with gradients.

    Raises UsageError for another layout of weights, MissingError without torch.
    """
    start = time.monotonic()
    torch: Any = library("torch").module
    holder = module if weights_of is None else weights_of
    w, heads = weights_of_mha(holder), int(holder.num_heads)
    dtype = w.wq.dtype
    rng = np.random.default_rng(seed)
    d = w.wq.shape[1]
    x = rng.standard_normal((batch, length, d)).astype(dtype)
    g = rng.standard_normal((batch, length, d)).astype(dtype)
    training = module.training
    module.eval()
    try:
        given = torch.from_numpy(x.copy()).requires_grad_(True)
        mask = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else None
        first = bool(getattr(holder, "batch_first", True))
        arranged = given if first else given.transpose(0, 1)
        out = module(arranged, arranged, arranged, attn_mask=mask, need_weights=False)[0]
        out = out if first else out.transpose(0, 1)
        names = ["x", "in_proj", "wo"]
        asked = [given, holder.in_proj_weight, holder.out_proj.weight]
        if holder.in_proj_bias is not None:
            names, asked = [*names, "in_bias", "bo"], [*asked, holder.in_proj_bias, holder.out_proj.bias]
        grads = torch.autograd.grad(out, asked, torch.from_numpy(g.copy()))
    finally:
        module.train(training)
    got = {"output": as_numpy(out)} | {n: as_numpy(y) for n, y in zip(names, grads, strict=True)}
    right, room = answers(x, g, w, heads, causal)
    findings: list[Finding] = []
    for name, value in got.items():
        judged = np.ones(value.shape, bool)
        zero = np.zeros(value.shape)
        label = "output" if name == "output" else f"gradient of {name}"
        for v in worst(value, right[name], zero, room[name], judged, label, {}, value.dtype):
            findings.append(
                Finding(
                    "proved wrong", "module" if name == "output" else "gradient", v.rule, v.message,
                    "self-attention module",
                    index=v.index, got=v.got, expected=v.expected, radius=v.radius, allowed=v.allowed, ulp=v.ulp,
                    dtype=dtype.name, seed=seed,
                )
            )  # fmt: skip
    return CheckResult(
        target=type(module).__name__, dtype=dtype.name, algorithm="matrix products and sums in the module's dtype",
        seed=seed, findings=tuple(findings), cases=len(got), calls=1, seconds=time.monotonic() - start,
    )  # fmt: skip


def answers(x: Array, g: Array, w: Weights, heads: int, causal: bool) -> tuple[dict[str, Array], dict[str, Array]]:
    """(values in long double, bounds of the error) of the output and of every gradient.

    The bound follows each quantity by running error analysis: a product of matrices with errors e_a, e_b has error
    e_a|b| + |a|e_b + e_a e_b + γ(|a| + e_a)(|b| + e_b), γ = (k + 2)u for inner length k (Higham 2002, section 3.1).
    """
    from compute.roundings import limits

    u = limits(x.dtype.name).unit
    d = x.shape[-1]
    width = d // heads

    def pair(a: Array) -> _Near:
        return _Near(a.astype(Wide), np.zeros(a.shape))

    def heads_first(n: _Near) -> _Near:
        return n.map(lambda t: t.reshape(*t.shape[:2], heads, width).transpose(0, 2, 1, 3))

    def joined(n: _Near) -> _Near:
        return n.map(lambda t: t.transpose(0, 2, 1, 3).reshape(t.shape[0], t.shape[2], d))

    nx, ng = pair(x), pair(g)
    q, k, v = (
        heads_first(nx.times(pair(m.T), u).plus(pair(b), u)) for m, b in ((w.wq, w.bq), (w.wk, w.bk), (w.wv, w.bv))
    )
    tau = width**-0.5
    s = q.times(k.swapped(), u).scaled(tau, u)
    seen = np.tril(np.ones(s.value.shape[-2:], bool)) if causal else np.ones(s.value.shape[-2:], bool)
    p = _softmax(s, seen, u)
    z = p.times(v, u)
    flat = joined(z)
    out = flat.times(pair(w.wo.T), u).plus(pair(w.bo), u)
    dflat = ng.times(pair(w.wo), u)
    dwo = ng.flat().swapped().times(flat.flat(), u)
    dz = heads_first(dflat)
    dp, dv = dz.times(v.swapped(), u), p.swapped().times(dz, u)
    delta = p.product(dp, u).summed(u)
    ds = p.product(dp.minus(delta, u), u).scaled(tau, u)
    dq, dk = ds.times(k, u), ds.swapped().times(q, u)
    parts = [joined(t) for t in (dq, dk, dv)]
    dx = parts[0].times(pair(w.wq), u).plus(parts[1].times(pair(w.wk), u), u).plus(parts[2].times(pair(w.wv), u), u)
    dw = [t.flat().swapped().times(nx.flat(), u) for t in parts]
    found = {
        "output": out,
        "x": dx,
        "in_proj": _Near(np.concatenate([t.value for t in dw]), np.concatenate([t.error for t in dw])),
        "wo": dwo,
        "in_bias": _stacked([t.flat().rows(u) for t in parts]),
        "bo": ng.flat().rows(u),
    }
    return {n: t.value for n, t in found.items()}, {n: t.error + 1e-300 for n, t in found.items()}


@dataclass(frozen=True, eq=False)
class _Near:
    """A value in long double and a bound on what a run in the module's dtype may be off by."""

    value: Array
    error: Array

    def map(self, f: Any) -> _Near:
        return _Near(f(self.value), f(self.error))

    def swapped(self) -> _Near:
        return self.map(lambda t: t.swapaxes(-1, -2))

    def flat(self) -> _Near:
        return self.map(lambda t: t.reshape(-1, t.shape[-1]))

    def times(self, other: _Near, u: float) -> _Near:
        a, b = np.abs(self.value).astype(np.float64), np.abs(other.value).astype(np.float64)
        gamma = (a.shape[-1] + 2) * u * 1.01
        size = (a + self.error) @ (b + other.error)
        error = self.error @ b + a @ other.error + self.error @ other.error + gamma * size
        return _Near(self.value @ other.value, error)

    def plus(self, other: _Near, u: float, sign: int = 1) -> _Near:
        value = self.value + sign * other.value
        error = self.error + other.error
        return _Near(value, error + u * (np.abs(value).astype(np.float64) + error))

    def minus(self, other: _Near, u: float) -> _Near:
        return self.plus(other, u, -1)

    def product(self, other: _Near, u: float) -> _Near:
        a, b = np.abs(self.value).astype(np.float64), np.abs(other.value).astype(np.float64)
        error = self.error * b + a * other.error + self.error * other.error
        return _Near(self.value * other.value, error + 1.01 * u * (a * b + error))

    def scaled(self, factor: float, u: float) -> _Near:
        error = self.error * factor
        size = np.abs(self.value).astype(np.float64) * factor
        return _Near(self.value * Wide(factor), error + 3 * u * (size + error))

    def summed(self, u: float) -> _Near:
        size = np.abs(self.value).astype(np.float64) + self.error
        error = self.error.sum(-1, keepdims=True) + self.value.shape[-1] * 1.01 * u * size.sum(-1, keepdims=True)
        return _Near(self.value.sum(-1, keepdims=True), error)

    def rows(self, u: float) -> _Near:
        return _Near(*(t[..., 0] for t in (self.swapped().summed(u).value, self.swapped().summed(u).error)))


def _softmax(s: _Near, seen: Array, u: float) -> _Near:
    top = np.where(seen, s.value, -np.inf).max(-1, keepdims=True)
    e = np.where(seen, np.exp(s.value - top), 0)
    p = e / e.sum(-1, keepdims=True)
    shift = u * np.abs(s.value - top).astype(np.float64)
    f = np.expm1(s.error + s.error.max(-1, keepdims=True) + shift) + 10 * u
    total = (p.astype(np.float64) * f).sum(-1, keepdims=True)
    bound = p.astype(np.float64) * (
        (1 + f) * (1 + (s.value.shape[-1] + 6) * u) / np.maximum(1 - total, 0.5) - 1 + total
    )
    return _Near(p, bound)


def _stacked(parts: list[_Near]) -> _Near:
    return _Near(np.concatenate([t.value for t in parts]), np.concatenate([t.error for t in parts]))
