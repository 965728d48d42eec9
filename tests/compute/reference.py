"""Attention and its gradients by loops over single numbers: what the package's algorithms are held to.

Shares no code with the package: visibility, corners, groups, lengths, RoPE and sums are written again, one entry at
a time, in Python floats with correctly rounded sums. Slow and obvious on purpose.

`error_bound` is the a-priori bound for the arithmetic of the package, in the form of the standard error analysis of
softmax: each logit off by δ, each exponential by θ, sums of m terms in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

ULPS_EXP = 4  # allowed to exp, exp2 and tanh: NumPy's tests state 1 to 4 by function and dtype


@dataclass
class Case:
    """One call: arrays, Spec, and the other arguments by name."""

    q: Any
    k: Any
    v: Any
    spec: Any
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def args(self):
        return self.q, self.k, self.v, self.spec


@dataclass
class Answer:
    """out, lse; bound: allowed error of each output; lse_bound."""

    out: Any
    lse: Any
    bound: Any
    lse_bound: Any


def visible(case: Case, at: tuple[int, ...], i: int, j: int) -> bool:
    q, k, spec = case.q, case.k, case.spec
    n, m, batch = q.shape[-2], k.shape[-2], at[:-1]
    full = (*q.shape[:-1], m)
    lengths = case.given.get("key_lengths")
    length = m if lengths is None else int(np.broadcast_to(lengths, q.shape[:-3])[batch])
    if j >= length:
        return False
    position = i + (length - n if spec.causal == "bottom-right" else spec.past)
    if spec.causal != "none" and j > position:
        return False
    if spec.window is not None:
        left, right = spec.window
        if left is not None and position - j > left:
            return False
        if right is not None and j - position > right:
            return False
    mask = case.given.get("mask")
    if mask is not None:
        cell = np.broadcast_to(mask, full)[(*at, i, j)]
        if (mask.dtype == bool and not cell) or (mask.dtype != bool and cell == -np.inf):
            return False
    bias = case.given.get("bias")
    return bias is None or np.broadcast_to(bias, full)[(*at, i, j)] != -np.inf


def turned(x: list[float], position: int, rope: Any) -> list[float]:
    if rope is None:
        return x
    dims = len(x) if rope.dims is None else rope.dims
    out = list(x)
    for c in range(dims // 2):
        a, b = (2 * c, 2 * c + 1) if rope.layout == "interleaved" else (c, c + dims // 2)
        angle = position * rope.base ** (-2 * c / dims)
        out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        out[b] = x[a] * math.sin(angle) + x[b] * math.cos(angle)
    return out


def extra(case: Case, at: tuple[int, ...], i: int, j: int) -> tuple[float, float]:
    """What is added to the capped score, and the sum of its absolute terms."""
    full, total, size = (*case.q.shape[:-1], case.k.shape[-2]), 0.0, 0.0
    for name in ("mask", "bias"):
        a = case.given.get(name)
        if a is not None and a.dtype != bool:
            x = float(np.broadcast_to(a, full)[(*at, i, j)])
            total, size = total + x, size + abs(x)
    slopes = case.given.get("alibi_slopes")
    if slopes is not None:
        slope = float(np.broadcast_to(slopes, case.q.shape[:-2])[at])
        lengths = case.given.get("key_lengths")
        m = case.k.shape[-2] if lengths is None else int(np.broadcast_to(lengths, case.q.shape[:-3])[at[:-1]])
        gap = j - (i + (m - case.q.shape[-2] if case.spec.causal == "bottom-right" else case.spec.past))
        x = slope * (-abs(gap) if case.spec.alibi == "distance" else gap)
        total, size = total + x, size + abs(x)
    return total, size


def row(case: Case, at: tuple[int, ...], i: int) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """By visible key: logit, d logit / d (τ q·k), and the error bound δ of the logit."""
    spec, rope = case.spec, case.spec.rope
    d = case.q.shape[-1]
    groups = case.q.shape[-3] // case.k.shape[-3]
    tau = 1 / math.sqrt(d) if spec.scale is None else float(spec.scale)
    u = np.finfo(np.float64 if case.q.dtype == np.float64 else np.float32).eps / 2
    q = turned([float(x) for x in case.q[(*at, i)]], (rope.q_offset if rope else 0) + i, rope)
    logits, slopes, deltas = {}, {}, {}
    for j in range(case.k.shape[-2]):
        if not visible(case, at, i, j):
            continue
        k = case.k[(*at[:-1], at[-1] // groups, j)]
        k = turned([float(x) for x in k], (rope.k_offset if rope else 0) + j, rope)
        raw = tau * math.fsum(a * b for a, b in zip(q, k, strict=True))
        size = abs(tau) * sum(abs(a * b) for a, b in zip(q, k, strict=True))
        delta = (d + (9 if rope else 5)) * u * size
        slope = 1.0
        s = raw
        if spec.softcap is not None:
            t = math.tanh(raw / spec.softcap)
            s, slope = spec.softcap * t, 1 - t * t
            delta += (2 * ULPS_EXP + 3) * u * abs(s)
        add, width = extra(case, at, i, j)
        logits[j], slopes[j] = s + add, slope
        deltas[j] = delta + 4 * u * (width + abs(s) + abs(s + add))
    return logits, slopes, deltas


def sink_of(case: Case, at: tuple[int, ...]) -> float:
    sink = case.given.get("sink")
    return -math.inf if sink is None else float(np.broadcast_to(sink, case.q.shape[:-2])[at])


def softmax(logits: dict[int, float], sink: float) -> tuple[dict[int, float], float, float]:
    """(weights, natural log-sum-exp, the sink's weight)."""
    top = max([*logits.values(), sink], default=-math.inf)
    if top == -math.inf:
        return {}, -math.inf, 0.0
    e = {j: math.exp(s - top) for j, s in logits.items()}
    own = math.exp(sink - top)
    total = math.fsum([*e.values(), own])
    return {j: x / total for j, x in e.items()}, top + math.log(total), own / total


def multiplier(case: Case, at: tuple[int, ...], i: int, j: int) -> float:
    drop = case.given.get("dropout_mask")
    if drop is None:
        return 1.0
    cell = np.broadcast_to(drop, (*case.q.shape[:-1], case.k.shape[-2]))[(*at, i, j)]
    return (1 / (1 - case.spec.dropout) if cell else 0.0) if drop.dtype == bool else float(cell)


def existing(case: Case, at: tuple[int, ...]) -> range:
    lengths = case.given.get("key_lengths")
    return range(case.k.shape[-2] if lengths is None else int(np.broadcast_to(lengths, case.q.shape[:-3])[at[:-1]]))


@dataclass
class Row:
    """One row: softmax, its slope factors, and bounds of the relative error of each weight (forward, backward)."""

    p: dict[int, float]
    total: float
    own: float
    slopes: dict[int, float]
    off: dict[int, float]
    off_back: dict[int, float]
    lse_bound: float

    @property
    def empty(self) -> bool:
        return not self.p and self.own == 0.0


def units(case: Case) -> tuple[float, float]:
    """(unit roundoff of the arithmetic, of the results)."""
    u = np.finfo(np.float64 if case.q.dtype == np.float64 else np.float32).eps / 2
    return float(u), float(np.finfo(np.float16).eps) / 2 if case.q.dtype == np.float16 else float(u)


def analyse(case: Case, at: tuple[int, ...], i: int) -> Row:
    u, _ = units(case)
    m = case.k.shape[-2]
    logits, slopes, deltas = row(case, at, i)
    p, total, own = softmax(logits, sink_of(case, at))
    if total == -math.inf:
        return Row(p, total, own, slopes, {}, {}, 0.0)
    reach = max([*(abs(s - total) for s in logits.values()), abs(total)])
    theta = 2 * ULPS_EXP * u * (2 + m)  # one exponential, and at most a rescaling a key
    far = {j: deltas[j] + 2 * u * reach for j in p}
    off = {j: math.expm1(far[j]) * (1 + theta) + theta for j in p}
    lost = math.fsum(p[j] * off[j] for j in p) + own * theta
    lse_bound = 2 * lost + (m + 4) * u + 8 * u * (1 + abs(total))
    back = {j: math.expm1(far[j] + lse_bound) * (1 + theta) + theta for j in p}
    return Row(p, total, own, slopes, off, back, lse_bound)


def forward(case: Case) -> Answer:
    q, v, spec = case.q, case.v, case.spec
    groups, d_v, m = q.shape[-3] // v.shape[-3], v.shape[-1], v.shape[-2]
    shape = (*q.shape[:-1], d_v)
    out, lse = np.zeros(shape), np.full(q.shape[:-1], -np.inf)
    bound, lse_bound = np.zeros(shape), np.zeros(q.shape[:-1])
    work = np.float64 if q.dtype == np.float64 else np.float32
    u, half = units(case)
    least = float(np.finfo(work).tiny) * u * 4 + float(np.finfo(q.dtype).smallest_subnormal)
    for at in np.ndindex(*q.shape[:-2]):
        values = v[(*at[:-1], at[-1] // groups)].astype(float)
        for i in range(q.shape[-2]):
            r, here = analyse(case, at, i), (*at, i)
            if r.empty:
                if spec.empty_row == "mean" and len(existing(case, at)):
                    out[here] = values[: len(existing(case, at))].mean(axis=0)
                    bound[here] = (m + 2) * (u + half) * abs(values).max(axis=0, initial=0)
                elif spec.empty_row == "nan":
                    out[here] = np.nan
                continue
            lse[here] = r.total / math.log(spec.lse_base)
            lse_bound[here] = r.lse_bound / math.log(spec.lse_base)
            lost = math.fsum(r.p[j] * r.off[j] for j in r.p) + r.own * 2 * ULPS_EXP * u * (2 + m)
            times = {j: multiplier(case, at, i, j) for j in r.p}
            for c in range(d_v):
                terms = {j: r.p[j] * times[j] * values[j, c] for j in r.p}
                z, size = math.fsum(terms.values()), math.fsum(map(abs, terms.values()))
                moved = math.fsum(r.off[j] * (abs(terms[j]) + r.p[j] * abs(z)) for j in r.p)
                out[(*here, c)] = z
                error = moved / max(1 - lost, 0.5) + (2 * m + 8) * u * (size + abs(z))
                under = (m + 2) * least * (1 + abs(values[:, c]).max(initial=0))
                bound[(*here, c)] = error * (1 + lost) + half * abs(z) + under
    return Answer(out, lse, bound, lse_bound)


def gradients(case: Case, grad_out: Any, grad_lse: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(gradients of Σ grad_out·out + Σ grad_lse·lse, bounds of their errors), by name."""
    q, k, v, spec = case.q, case.k, case.v, case.spec
    rope, d, d_v = spec.rope, q.shape[-1], v.shape[-1]
    n, m = q.shape[-2], k.shape[-2]
    groups = q.shape[-3] // k.shape[-3]
    tau = 1 / math.sqrt(d) if spec.scale is None else float(spec.scale)
    u, half = units(case)
    sums = (n * groups + m + d + 12) * u  # length of any sum met on the way, and a few single operations
    shapes = {
        "dq": q.shape,
        "dk": k.shape,
        "dv": v.shape,
        "dscale": (),
        "dbias": (*q.shape[:-1], m),
        "dsink": q.shape[:-2],
    }
    g = {name: np.zeros(shape) for name, shape in shapes.items()}
    e = {name: np.zeros(shape) for name, shape in shapes.items()}
    size = {name: np.zeros(shape) for name, shape in shapes.items()}

    def put(name: str, where: Any, value: Any, error: Any) -> None:
        g[name][where] += value
        e[name][where] += error
        size[name][where] += abs(value)

    for at, i in product(np.ndindex(*q.shape[:-2]), range(n)):
        home, here = (*at[:-1], at[-1] // groups), (*at, i)
        go, gl = grad_out[here].astype(float), float(grad_lse[here]) / math.log(spec.lse_base)
        r = analyse(case, at, i)
        if r.empty:
            there = existing(case, at)
            if spec.empty_row == "mean":
                for j in there:
                    put("dv", (*home, j), go / len(there), 0)
            continue
        times = {j: multiplier(case, at, i, j) for j in r.p}
        dp = {j: times[j] * float(go @ v[(*home, j)].astype(float)) for j in r.p}
        wide = {j: times[j] * float(abs(go) @ abs(v[(*home, j)].astype(float))) for j in r.p}
        mean = math.fsum(r.p[j] * dp[j] for j in r.p)
        mean_error = math.fsum(
            r.p[j] * wide[j] * (2 * r.off_back[j] + (2 * m + d_v + 8) * u) for j in r.p
        ) + 2 * u * abs(gl)
        mean_error += 2 * abs(mean) * math.fsum(r.p[j] * r.off_back[j] for j in r.p)
        own_error = 2 * r.lse_bound + 2 * ULPS_EXP * u + 2 * u * abs(r.total)
        put("dsink", at, r.own * (gl - mean), r.own * ((own_error + 2 * u) * abs(gl - mean) + mean_error))
        qi = np.array(turned([float(x) for x in q[here]], (rope.q_offset if rope else 0) + i, rope))
        for j in r.p:
            ds = r.p[j] * (dp[j] - mean + gl)
            error = r.p[j] * (
                (1 + r.off_back[j]) * ((d_v + 6) * u * wide[j] + mean_error)
                + (r.off_back[j] + 4 * u) * (wide[j] + abs(mean) + abs(gl))
            )
            put("dbias", (*here, j), ds, error)
            kj = np.array(turned([float(x) for x in k[(*home, j)]], (rope.k_offset if rope else 0) + j, rope))
            back_k = np.array(turned(list(kj), -((rope.q_offset if rope else 0) + i), rope))
            back_q = np.array(turned(list(qi), -((rope.k_offset if rope else 0) + j), rope))
            reach_q, reach_k = (abs(x) if rope is None else np.full(d, np.linalg.norm(x)) for x in (qi, kj))
            inner, inner_error = ds * r.slopes[j], error + abs(ds) * ((4 * ULPS_EXP + 8) * u + 4 * r.off[j])
            put("dq", here, inner * tau * back_k, inner_error * abs(tau) * reach_k)
            put("dk", (*home, j), inner * tau * back_q, inner_error * abs(tau) * reach_q)
            put("dscale", (), inner * float(qi @ kj), inner_error * float(abs(qi) @ abs(kj)))
            if rope is not None:
                size["dq"][here] += abs(inner * tau) * reach_k
                size["dk"][(*home, j)] += abs(inner * tau) * reach_q
            w = r.p[j] * times[j]
            put("dv", (*home, j), w * go, w * (r.off_back[j] + 4 * u) * abs(go))
    least = float(np.finfo(q.dtype).smallest_subnormal) * (2 * (n * groups + m) + 8)
    for name in g:
        e[name] = e[name] + sums * size[name] + half * abs(g[name]) + least
    for name in ("bias", "sink"):
        array = case.given.get(name)
        for x in (g, e):
            x["d" + name] = None if array is None else summed(x["d" + name], np.shape(array))
    return g, e


def summed(whole: Any, shape: tuple[int, ...]) -> Any:
    """Summed back to the shape that was broadcast."""
    whole = whole.sum(axis=tuple(range(whole.ndim - len(shape))))
    return whole.sum(axis=tuple(a for a, s in enumerate(shape) if s == 1), keepdims=True)


def faults(got: Any, want: Any, bound: Any) -> float:
    """The largest error over its bound; inf where shapes, NaN or infinities differ. At most 1 is right."""
    got, want = np.asarray(got, dtype=float), np.asarray(want, dtype=float)
    if got.shape != want.shape:
        return math.inf
    odd = ~np.isfinite(want)
    if not np.array_equal(got[odd], want[odd], equal_nan=True) or not np.isfinite(got[~odd]).all():
        return math.inf
    if got.size == 0 or odd.all():
        return 0.0
    error, allowed = abs(got[~odd] - want[~odd]), np.broadcast_to(bound, want.shape)[~odd]
    ratio = np.where(error == 0, 0.0, error / np.where(allowed == 0, np.finfo(float).tiny, allowed))
    return float(ratio.max())
