"""Statistics of error: what a worst case cannot see. RMS, bias, row RMS and maximum against an expected model.

Guarantees: "suspicious" is never "proved wrong"; every test states its false-alarm probability, and all tests of a
run together stay at or below 1e-4 under the model: errors of different rows independent and symmetric, with the
variances of the rounding model below, up to the stated margins.
Does not: cover float32 and float64 (no model of their partial sums is good enough here), or structured inputs: the
inputs are normal, and each is drawn anew from the seed.

Model: a rounding to nearest with unit roundoff u has a relative error of mean square u²/(8 ln 2) for mantissas spread
log-uniformly. Cast weights, stored scores (eager), dS and the output are rounded once each; sums in float32 count for
nothing beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.checking.allowance import Judge
from verify.checking.calls import Array, Call, Reply
from verify.checking.cases import Setting
from verify.checking.reference import Reading, repeated
from verify.checking.result import Finding
from verify.checking.values import comparable

Ask = Callable[[Call], Reply]
KAPPA = 1 / (8 * math.log(2))
FALSE_ALARM = 1e-4
# What the model itself may be off by, found over correct kernels (benchmarks/checking.md): factor on the RMS, and
# shift of the mean in units of the RMS.
MARGIN_RMS = 1.12
MARGIN_BIAS = 0.012


@dataclass(frozen=True)
class Figure:
    """One test: its statistic, the threshold it must stay below, and what it speaks of."""

    name: str
    value: float
    threshold: float
    text: str


@dataclass(frozen=True, eq=False)
class Sample:
    """Errors in units of the expected RMS, rows first: (rows, channels), and the sign of the right values."""

    name: str
    s: Array
    sign: Array


def suspicious(
    setting: Setting, plan: Any, ask: Ask, judge: Judge, reading: Reading
) -> tuple[list[Finding], dict[str, float], list[str]]:
    """(findings, figures for the report, what was not looked at)."""
    limit = "statistics of error: a limit of this tool, not of the target: "
    if setting.dtype not in ("float16", "bfloat16"):
        return [], {}, [f"{limit}no calibrated model for {setting.dtype}"]
    if setting.base.causal != "none" or setting.base.window is not None or setting.base.softcap is not None:
        return [], {}, [f"{limit}modelled for plain attention only"]
    if setting.base.rope is not None or "alibi" in setting.declared.fields or reading.tiled:
        return [], {}, [f"{limit}modelled for plain attention only"]
    rng = np.random.default_rng(plan.seed + 4)
    inputs = [(1024, 64, 1.0), (1024, 64, 3.5)] if not plan.quick else [(256, 64, 2.0)]
    graded = "grad" in setting.has and (plan.gradients or setting.profile.like == "numpy") and not plan.quick
    backward = [(512, 64, 1.0), (1024, 64, 1.0)] if graded else []
    samples: list[tuple[Call, list[Sample]]] = []
    for n, d, size in inputs:
        call = setting.call(*setting.normal(rng, n, n, d, h=1, size=size))
        if setting.fits(call):
            samples.append((call, forward_sample(call, ask(call), judge)))
    for n, d, size in backward:
        call = setting.call(*setting.normal(rng, n, n, d, h=1, size=size))
        cotangent: Array = np.asarray(rng.standard_normal(call.v.shape)).astype(setting.kind)
        call = call.with_(grad_output=cotangent)
        if setting.fits(call) and call.q.shape == call.v.shape:
            samples.append((call, gradient_sample(call, ask(call), judge)))
    tests = 4 * sum(len(found) for _, found in samples)
    findings, figures = [], {}
    for call, found in samples:
        n, size = call.q.shape[2], float(np.std(call.q.astype(np.float64)))
        for sample in found:
            label = f"{sample.name} at n = {n}, scores × {size:.1f}"
            for figure in judged(sample, FALSE_ALARM / max(tests, 1)):
                figures[f"{figure.name} of {label}"] = figure.value
                if figure.value > figure.threshold:
                    findings.append(_finding(figure, label, setting, call))
    return _first_of_each(findings), figures, []


def _finding(figure: Figure, label: str, setting: Setting, call: Call) -> Finding:
    text = f"{figure.name} of {label} is {figure.value:.3g}, expected at most {figure.threshold:.3g}: {figure.text}"
    gradient = "gradient" in label
    diagnosis = {
        "bias": "errors lean one way: consistent with an approximate exp, truncation, or a normaliser that is off",
        "RMS": "consistent with a 16-bit accumulator" if gradient else "consistent with one more rounding in 16 bits",
        "row RMS": "some rows are worse than their neighbours: consistent with a tile or a tail handled otherwise",
        "maximum": "a few entries are far off",
    }[figure.name]
    return Finding(
        verdict="suspicious",
        kind=f"{figure.name} of error" if not gradient else f"{figure.name} of gradient error",
        rule="statistics",
        message=text,
        case=label,
        diagnosis=diagnosis,
        dtype=setting.dtype,
        probability=FALSE_ALARM,
    )


def _first_of_each(findings: list[Finding]) -> list[Finding]:
    kept: dict[str, Finding] = {}
    for finding in findings:
        kept.setdefault(finding.kind, finding)
    return list(kept.values())


# -- tests -----------------------------------------------------------------------------------------------------------


def judged(sample: Sample, probability: float) -> list[Figure]:
    """RMS and bias by one-sided t-tests over rows, row RMS by chi-square, the maximum by the normal tail."""
    from scipy import special  # scipy.stats takes a second to load

    s = sample.s
    rows, width = s.shape
    squares = (s * s).mean(1)
    t = -float(special.stdtrit(rows - 1, probability))
    spread = float(squares.std(ddof=1)) / math.sqrt(rows)
    rms = math.sqrt(float(squares.mean()))
    rms_limit = math.sqrt(MARGIN_RMS**2 + t * spread)
    lean = (s * sample.sign).mean(1)
    bias = abs(float(lean.mean()))
    bias_limit = MARGIN_BIAS * rms + t * float(lean.std(ddof=1)) / math.sqrt(rows)
    dof = width / 2  # channels of a row share its weights' errors
    row_limit = MARGIN_RMS * math.sqrt(float(special.chdtri(dof, probability / rows)) / dof) * max(1.0, rms)
    most_limit = MARGIN_RMS * -float(special.ndtri(probability / (2 * s.size))) * max(1.0, rms)
    return [
        Figure("RMS", rms, rms_limit, "RMS error over that of the rounding model"),
        Figure("bias", bias, bias_limit, "mean of error · sign(value) over the expected RMS"),
        Figure("row RMS", float(np.sqrt(squares.max())), row_limit, "the worst row's RMS"),
        Figure("maximum", float(np.abs(s).max()), most_limit, "the largest error"),
    ]


# -- the rounding model ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exact:
    """One head in float64, whose own errors (1e-15) are nothing beside those of 16 bits."""

    q: Array
    k: Array
    v: Array
    p: Array
    s: Array
    z: Array
    scale: float


def solved(call: Call, head: int) -> Exact:
    """Head `head` of item 0 in float64."""
    h = call.q.shape[1]
    q = call.q[0, head].astype(np.float64)
    k, v = (repeated(x, h)[0, head].astype(np.float64) for x in (call.k, call.v))
    scale = call.spec.scale_value(q.shape[1])
    s = q @ k.T * scale
    e = np.exp(s - s.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    return Exact(q, k, v, p, s, p @ v, scale)


def output_variance(x: Exact, algorithm: Any) -> Array:
    """Expected square of the output's error, per entry."""
    from compute.roundings import Eager, limits

    def square(name: str | None) -> float:
        return 0.0 if name is None or name == algorithm.accumulate else KAPPA * limits(name).unit ** 2

    variance = square(algorithm.weights) * (x.p**2 @ x.v**2) + square(algorithm.output) * x.z**2
    if isinstance(algorithm, Eager) and algorithm.scores is not None:
        store = square(algorithm.scores)
        spread = store * x.s**2 * algorithm.score_stores
        if algorithm.scale_on != "scores" and algorithm.scale_format is not None:
            sides = 2 if algorithm.scale_on == "both" else 1
            spread = spread + sides * square(algorithm.scale_format) * (x.q**2 @ (x.k**2).T) * x.scale**2
        w = x.p**2 * spread
        variance = variance + w @ x.v**2 - 2 * (w @ x.v) * x.z + w.sum(1, keepdims=True) * x.z**2
    return np.maximum(variance, 1e-300)


def gradient_variances(x: Exact, do: Array, algorithm: Any) -> dict[str, tuple[Array, Array]]:
    """(exact, expected square of the error) of dQ, dK, dV: P and dS cast once, D from the stored output."""
    from compute.roundings import limits

    cast = KAPPA * limits(algorithm.weights).unit ** 2
    out = KAPPA * limits(algorithm.output).unit ** 2
    dp = do @ x.v.T
    d = (do * x.z).sum(1, keepdims=True)
    ds = x.p * (dp - d)
    e_d = (do**2 * output_variance(x, algorithm)).sum(1, keepdims=True)
    dq, dk, dv = x.scale * ds @ x.k, x.scale * ds.T @ x.q, x.p.T @ do
    scale = x.scale**2
    var_q = scale * (cast * (ds**2 @ x.k**2) + e_d * (x.p @ x.k) ** 2) + out * dq**2
    var_k = scale * (cast * ((ds**2).T @ x.q**2) + (x.p**2 * e_d).T @ x.q**2) + out * dk**2
    var_v = cast * ((x.p**2).T @ do**2) + out * dv**2
    return {"q": (dq, var_q), "k": (dk, var_k), "v": (dv, var_v)}


def forward_sample(call: Call, reply: Reply, judge: Judge) -> list[Sample]:
    """The output's errors of all heads, in units of the largest expected RMS over the judge's algorithms."""
    if not comparable(call, reply) or reply.output is None:
        return []
    errors, signs = [], []
    for head in range(call.q.shape[1]):
        x = solved(call, head)
        deviation: Array = np.sqrt(np.maximum.reduce([output_variance(x, a) for a in judge.algorithms]))
        errors.append((reply.output[0, head].astype(np.float64) - x.z) / deviation)
        signs.append(np.sign(x.z))
    return [Sample("output", np.concatenate(errors), np.concatenate(signs))]


def gradient_sample(call: Call, reply: Reply, judge: Judge) -> list[Sample]:
    """The gradients' errors, likewise; grouped heads are left out."""
    if reply.fault is not None or call.q.shape[1] != call.k.shape[1] or call.grad_output is None:
        return []
    x = solved(call, 0)
    do = call.grad_output[0, 0].astype(np.float64)
    found = []
    models = [gradient_variances(x, do, a) for a in judge.algorithms]
    for name in ("q", "k", "v"):
        got = reply.gradients.get(name)
        if got is None or got.shape != getattr(call, name).shape:
            continue
        mid = models[0][name][0]
        deviation: Array = np.sqrt(np.maximum.reduce([m[name][1] for m in models]))
        error = (got[0, 0].astype(np.float64) - mid) / np.maximum(deviation, 1e-300)
        found.append(Sample(f"gradient of {name}", error, np.sign(mid)))
    return found
