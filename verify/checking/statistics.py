"""Statistics of error: what a worst case cannot see. RMS, bias, row RMS and maximum against an expected model.

Guarantees: "suspicious" is never "proved wrong", and is said only of a test that fails on two inputs drawn
independently, each time beyond a threshold that a correct kernel passes with a probability of at most √(α/T), T tests
in the run. Given the kernel, the two draws are independent, so that a run's false-alarm probability is at most
Σ (√(α/T))² = α = 1e-4 (Bonferroni over the tests). What remains to be supported by data is the threshold's own
probability, about 1e-3, which `python benchmarks/checking.py --alarms` measures over correct kernels without any
extrapolation into a tail (benchmarks/checking.md has the figures and their upper confidence limits).
Does not: hold for a kernel whose roundings are not those of `rounding_model`, up to the margins below; speak of
structured inputs: the inputs are normal, drawn anew from the seed.
In float32 and float64 the order of sums is not known, and the RMS of a library may lie well below the model: the RMS
finds what is several times worse than sums in any order, and the sharp test is the bias: rounding to nearest leans no
way, so that an output is too large or too small on the whole by no more than exp's own error allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from verify.checking.allowance import Judge
from verify.checking.calls import Array, Call, Reply
from verify.checking.cases import Generator, Setting
from verify.checking.reference import Reading
from verify.checking.result import Finding
from verify.checking.rounding_model import (
    KAPPA,
    Exact,
    Roundings,
    distinct,
    extended,
    gradient_variances,
    output_variance,
    solved,
    weight_square,
)
from verify.checking.values import comparable

Ask = Callable[[Call], Reply]
FALSE_ALARM = 1e-4
TESTS = ("RMS", "bias", "row RMS", "maximum")
# What the model itself may be off by, found over correct kernels (benchmarks/checking.md): factor on the RMS, and
# shift of the mean in units of the RMS. The latter is for 16-bit formats; elsewhere the systematic part is derived.
MARGIN_RMS = 1.12
MARGIN_BIAS = 0.012
SIXTEEN = ("float16", "bfloat16")


@dataclass(frozen=True)
class Figure:
    """One test: its statistic, the threshold it must stay below, and what it speaks of."""

    name: str
    value: float
    threshold: float
    text: str


@dataclass(frozen=True, eq=False)
class Sample:
    """Errors in units of the expected RMS, rows first: (rows, channels), and the right values in the same units.

    terms: how many independent terms each row's errors are as good as made of, the same in every channel. lean: None
    where the bias is asked in units of the RMS (16 bits); else the largest relative lean of a correct run. shared:
    standard deviation of a lean that all rows have in common, from keys and values that are rounded once for all.
    """

    name: str
    s: Array
    value: Array
    terms: Array
    lean: float | None = None
    shared: float = 0.0


def suspicious(
    setting: Setting, plan: Any, ask: Ask, judge: Judge, reading: Reading
) -> tuple[list[Finding], dict[str, float], list[str]]:
    """(findings, figures for the report, what was not looked at)."""
    limit = "statistics of error: a limit of this tool, not of the target: "
    if extended(setting.dtype) is None:
        return [], {}, [f"{limit}no format beyond {setting.dtype} on this machine"]
    if setting.base.causal != "none" or setting.base.window is not None or setting.base.softcap is not None:
        return [], {}, [f"{limit}modelled for plain attention only"]
    if setting.base.rope is not None or "alibi" in setting.declared.fields or reading.tiled:
        return [], {}, [f"{limit}modelled for plain attention only"]
    graded = "grad" in setting.has and (plan.gradients or setting.profile.like == "numpy") and not plan.quick
    rounds = list(draws(setting.dtype, plan.quick, graded))
    level = threshold_probability(rounds, plan.dtypes)
    first, second = (np.random.default_rng([plan.seed, stage]) for stage in (4, 5))
    findings: list[Finding] = []
    figures: dict[str, float] = {}
    for one in rounds:
        size = 0.0
        failed: dict[tuple[str, str], tuple[Figure, Figure | None]] = {}
        for sample, size in _asked(setting, one, first, ask, judge):
            for figure in judged(sample, level):
                figures[f"{figure.name} of {_label(sample, one.n, size)}"] = figure.value
                if figure.value > figure.threshold:
                    failed[sample.name, figure.name] = (figure, None)
        if not failed:
            continue
        for sample, _ in _asked(setting, one, second, ask, judge):
            for figure in judged(sample, level):
                key = (sample.name, figure.name)
                if key in failed and figure.value > figure.threshold:
                    findings.append(_finding(failed[key][0], figure, _label(sample, one.n, size), setting))
    return _first_of_each(findings), figures, []


@dataclass(frozen=True)
class Draw:
    """Normal inputs of one size: n queries and keys, d channels, q multiplied by size; with a cotangent if graded."""

    n: int
    d: int
    size: float
    graded: bool = False

    @property
    def tests(self) -> int:
        return len(TESTS) * (3 if self.graded else 1)


def draws(dtype: str, quick: bool, graded: bool) -> Iterator[Draw]:
    """The inputs of a run. Smaller in float64, whose right values come from long double."""
    wide = dtype == "float64"
    if quick:
        yield Draw(128 if wide else 256, 64, 2.0)
        return
    n = 256 if wide else 1024
    yield Draw(n, 64, 1.0)
    yield Draw(n, 64, 3.5)
    if graded:
        yield Draw(n // 2, 64, 1.0, True)
        if dtype in SIXTEEN:  # whose accumulators show in the number of blocks
            yield Draw(n, 64, 1.0, True)


def threshold_probability(rounds: list[Draw], dtypes: int = 1) -> float:
    """√(α/T): the probability at which each of the two draws' thresholds stands."""
    tests = max(sum(one.tests for one in rounds), 1) * dtypes
    return math.sqrt(FALSE_ALARM / tests)


def _asked(setting: Setting, one: Draw, rng: Generator, ask: Ask, judge: Judge) -> Iterator[tuple[Sample, float]]:
    call = setting.call(*setting.normal(rng, one.n, one.n, one.d, h=1, size=one.size))
    cotangent: Array = np.asarray(rng.standard_normal(call.v.shape)).astype(setting.kind)
    if one.graded and call.q.shape == call.v.shape:
        call = call.with_(grad_output=cotangent)
    elif one.graded:
        return
    if setting.fits(call):
        size = float(np.std(call.q.astype(np.float64)))
        for sample in (gradient_sample if one.graded else forward_sample)(call, ask(call), judge):
            yield sample, size


def _label(sample: Sample, n: int, size: float) -> str:
    return f"{sample.name} at n = {n}, scores × {size:.1f}"


def _finding(first: Figure, second: Figure, label: str, setting: Setting) -> Finding:
    text = (
        f"{first.name} of {label} is {first.value:.3g}, expected at most {first.threshold:.3g}, and on a second, "
        f"independent draw {second.value:.3g}: {first.text}"
    )
    gradient = "gradient" in label
    coarser = "consistent with a 16-bit accumulator" if gradient else "consistent with one more rounding in 16 bits"
    if setting.dtype not in SIXTEEN:
        coarser = "consistent with roundings coarser than those of the declared algorithm"
    diagnosis = {
        "bias": "errors lean one way: consistent with an approximate exp, truncation, or a normaliser that is off",
        "RMS": coarser,
        "row RMS": "some rows are worse than their neighbours: consistent with a tile or a tail handled otherwise",
        "maximum": "a few entries are far off",
    }[first.name]
    return Finding(
        verdict="suspicious",
        kind=f"{first.name} of error" if not gradient else f"{first.name} of gradient error",
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
    """RMS and bias by t-tests over rows, row RMS by Fisher's F, the maximum by Student's tail.

    Rows of an output are independent given the keys, so that a mean over rows is one of independent terms. A row's
    errors Σ_j ξ_j u_j, u_j of random direction over d channels, have d / (1 + d/terms) degrees of freedom (by matching
    two moments; Satterthwaite 1946). The variance of an entry is known as well as that of a mean over its terms, hence
    Student's tail, and F for a row, of 2·terms + 4 degrees. probability: at which each threshold stands.
    """
    from scipy import special  # scipy.stats takes a second to load

    s = sample.s
    rows, channels = s.shape
    squares = (s * s).mean(1)
    t = -float(special.stdtrit(rows - 1, probability))
    spread = float(squares.std(ddof=1)) / math.sqrt(rows)
    rms = math.sqrt(float(squares.mean()))
    rms_limit = math.sqrt(MARGIN_RMS**2 + t * spread)
    dof = channels / (1 + channels / sample.terms)
    limits = np.sqrt(special.fdtri(dof, 2 * sample.terms + 4, 1 - probability / rows))
    worst = int((np.sqrt(squares) / limits).argmax())
    row_limit = MARGIN_RMS * float(limits[worst]) * max(1.0, rms)
    most = np.abs(s).max(1)
    tails = -special.stdtrit(2 * sample.terms + 4, probability / (2 * s.size))
    peak = int((most / tails).argmax())
    most_limit = MARGIN_RMS * float(tails[peak]) * max(1.0, rms)
    return [
        Figure("RMS", rms, rms_limit, "RMS error over that of the rounding model"),
        _bias(sample, rms, -float(special.stdtrit(rows - 1, probability / 2))),
        Figure("row RMS", float(np.sqrt(squares[worst])), row_limit, "the worst row's RMS"),
        Figure("maximum", float(most[peak]), most_limit, "the largest error"),
    ]


def _bias(sample: Sample, rms: float, t: float) -> Figure:
    """Whether errors lean one way: the mean of error · sign in units of the RMS, or error on value by least squares."""
    s, rows = sample.s, len(sample.s)
    if sample.lean is None:
        lean = (s * np.sign(sample.value)).mean(1)
        limit = MARGIN_BIAS * rms + t * float(lean.std(ddof=1)) / math.sqrt(rows)
        return Figure("bias", abs(float(lean.mean())), limit, "mean of error · sign(value) over the expected RMS")
    lean = (s * sample.value).mean(1) / float((sample.value**2).mean())
    deviation = math.hypot(float(lean.std(ddof=1)) / math.sqrt(rows), sample.shared)
    text = "by how much the values are too large or too small on the whole, relative to themselves"
    return Figure("bias", abs(float(lean.mean())), sample.lean + t * deviation, text)


# -- samples ---------------------------------------------------------------------------------------------------------


def _lean(judge: Judge, heads: list[Exact], sides: int) -> float:
    """The largest relative lean of a correct run of any of the judge's algorithms.

    exp's relative error is at most 2·exp_ulp·u, and a weight's against the normaliser's at most twice that; the scale
    and log₂e are rounded once each and multiply every score, 3u; the normaliser loses what is below its last place; a
    few roundings more. sides: 1 for an output, 2 for a gradient, which meets the weights twice.
    """
    from compute.roundings import limits

    each = [(limits(a.accumulate).unit, a.exp_ulp) for a in judge.algorithms]
    return max(
        sides * (u * (4 * ulp + 4 + 3 * abs(x.lean_of_scale)) + x.lean_of_loss(u)) for u, ulp in each for x in heads
    )


def _shared(judge: Judge, keys: int, channels: int) -> float:
    """Keys and values rounded once for all rows: m·d_v roundings are averaged, not n·m·d_v; two of them count."""
    from compute.roundings import limits

    units = {"tf32": limits("tf32").unit, "bf16x3": limits("bfloat16").unit ** 2}
    worst = max(units.get(a.products, 0.0) for a in judge.algorithms)
    return 2 * math.sqrt(KAPPA) * worst / math.sqrt(max(keys * channels, 1))


def _terms(squares: Array) -> Array:
    """(Σ squares)² / Σ squares², rows of them: how many terms a row's error is as good as made of."""
    total = squares.sum(1) ** 2
    return np.asarray(np.maximum(total / np.maximum((squares * squares).sum(1), 1e-300), 1.0))


def _moved(x: Exact, judge: Judge) -> Array:
    """E of the square of what each key's weight moves the output by, and last the normaliser: (rows, keys + 1).

    For the loosest algorithm.
    """
    algorithms = distinct(judge.algorithms)
    parts = [Roundings.of(a) for a in algorithms]
    relative = [weight_square(x, a, r) + r.weights for a, r in zip(algorithms, parts, strict=True)]
    distance = (x.v**2).sum(1) - 2 * x.z @ x.v.T + (x.z**2).sum(1, keepdims=True)
    moved = x.p**2 * np.maximum.reduce([np.broadcast_to(r, x.p.shape) for r in relative]) * distance
    common = np.maximum.reduce([np.broadcast_to(r.normaliser(x), (len(x.q), 1)) for r in parts])
    return np.concatenate([moved, common * (x.z**2).sum(1, keepdims=True)], 1)


def forward_sample(call: Call, reply: Reply, judge: Judge) -> list[Sample]:
    """The output's errors of all heads, in units of the largest expected RMS over the judge's algorithms."""
    if not comparable(call, reply) or reply.output is None:
        return []
    errors, values, terms, heads = [], [], [], []
    for head in range(call.q.shape[1]):
        x = solved(call, head)
        deviation: Array = np.sqrt(np.maximum.reduce([output_variance(x, a) for a in distinct(judge.algorithms)]))
        errors.append(_error(reply.output[0, head], x.wide_z) / deviation)
        values.append(x.z / deviation)
        terms.append(_terms(_moved(x, judge)))
        heads.append(x)
    lean = None if call.dtype.name in SIXTEEN else _lean(judge, heads, 1)
    shared = _shared(judge, call.k.shape[2], call.v.shape[3])
    return [Sample("output", np.concatenate(errors), np.concatenate(values), np.concatenate(terms), lean, shared)]


def gradient_sample(call: Call, reply: Reply, judge: Judge) -> list[Sample]:
    """The gradients' errors, likewise; grouped heads are left out."""
    if reply.fault is not None or call.q.shape[1] != call.k.shape[1] or call.grad_output is None:
        return []
    x = solved(call, 0)
    do = call.grad_output[0, 0].astype(np.float64)
    found = []
    models = [gradient_variances(x, do, a) for a in distinct(judge.algorithms)]
    lean = None if call.dtype.name in SIXTEEN else _lean(judge, [x], 2)
    shared = _shared(judge, call.k.shape[2], call.v.shape[3])
    weights = _gradient_weights(x, do)
    for name in ("q", "k", "v"):
        got = reply.gradients.get(name)
        if got is None or got.shape != getattr(call, name).shape:
            continue
        mid = models[0][name][0]
        deviation = np.maximum(np.sqrt(np.maximum.reduce([m[name][1] for m in models])), 1e-300)
        value = np.asarray(mid, np.float64) / deviation
        error = _error(got[0, 0], mid) / deviation
        found.append(Sample(f"gradient of {name}", error, value, _terms(weights[name]), lean, shared))
    return found


def _gradient_weights(x: Exact, do: Array) -> dict[str, Array]:
    ds = x.p * (do @ x.v.T - (do * x.z).sum(1, keepdims=True))
    return {"q": ds**2, "k": (ds**2).T, "v": (x.p**2).T}


def _error(got: Array, right: Array) -> Array:
    return np.asarray(got.astype(right.dtype) - right, np.float64)
