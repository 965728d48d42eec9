"""Emulated low-precision backward passes against the gradient tolerance of what they declare.

Guarantees: algorithms, meanings of the call, sizes and magnitudes are drawn together; an entry counts as a violation
only where the certified enclosure of the exact gradient leaves no doubt. Float64 algorithms are not judged here (the
enclosure is no sharper than they are): tests hold them to balls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compute.bounds import Eager, Flash, tolerance
from compute.certificate import certify
from compute.emulate_backward import emulated_attention_backward
from compute.spec import Spec
from tests.compute.lowprec import quant

F32 = np.float32
Rng = np.random.Generator


def _all() -> Iterator[tuple[str, str, Flash | Eager]]:
    """(name, format of the inputs, algorithm)."""
    for fmt in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        out = "bfloat16" if "float8" in fmt else fmt
        common: dict[str, Any] = {"weights": fmt, "output": out, "exp_ulp": 1.5}
        stored = None if fmt == "float32" else fmt
        yield f"flash {fmt}", fmt, Flash(**common, block=16)
        yield f"flash exp2 {fmt}", fmt, Flash(**common, block=16, base2=True)
        yield f"eager {fmt}", fmt, Eager(**common, scores=stored)
        yield f"eager unshifted {fmt}", fmt, Eager(**common, scores=stored, shifted=False)
        yield f"eager both {fmt}", fmt, Eager(**common, scores=stored, scale_on="both", scale_format=stored)
        yield f"flash query {fmt}", fmt, Flash(**common, block=8, scale_on="query", scale_format=stored)
        if stored:
            yield f"eager every {fmt}", fmt, Eager(**common, scores=stored, score_stores=2, every_op=True)
    yield "tf32", "float32", Flash(products="tf32", exp_ulp=1.5, block=16)
    yield "bf16x3", "float32", Flash(products="bf16x3", exp_ulp=1.5, block=16)
    yield "bf16x3 eager", "float32", Eager(products="bf16x3", exp_ulp=1.5)
    yield "flushing", "float32", Flash(flush=True, exp_ulp=1.5, block=16)
    yield "flushing eager", "float32", Eager(flush=True, exp_ulp=1.5)
    yield "sums in float16", "float16", Flash(weights="fp16", accumulate="fp16", output="fp16", exp_ulp=1.0, block=16)
    yield (
        "sums in bfloat16",
        "bfloat16",
        Eager(weights="bf16", accumulate="bf16", output="bf16", scores="bf16", exp_ulp=1.0),
    )


ALGORITHMS = {name: (fmt, alg) for name, fmt, alg in _all()}
MEANINGS = ("plain", "softcap", "bias", "slopes", "sink", "causal", "mask", "groups", "lengths", "means", "scale")


@dataclass
class Result:
    """What an attack saw: entries judged, where the bound failed, where overflow was predicted, largest shares, and
    the sources without which the bound would have failed."""

    checks: int = 0
    predicted: int = 0
    needed: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)


def draw(rng: Rng, fmt: str, meaning: str) -> tuple[list[np.ndarray], Spec, dict[str, Any]]:
    """[q, k, v, grad_output] as numbers of the format in float32, a Spec, and the call's other arrays."""
    n, m = int(rng.choice([1, 5, 24])), int(rng.choice([1, 2, 9, 33, 70]))
    d, d_v = int(rng.choice([1, 3, 16])), int(rng.choice([1, 3, 8]))
    h, h_kv = (4, 2) if meaning == "groups" else (2, 2)
    sizes = [float(rng.choice(c)) for c in ((0, 0.3, 1, 3, 12), (0.1, 1, 3), (1e-4, 1, 30), (1e-3, 1, 8))]
    if fmt == "float32" and rng.random() < 0.15:  # near the ends of the range: underflow of factors and products
        sizes[0], sizes[1] = float(rng.choice([1e-38, 1e-30, 1e18])), float(rng.choice([1e-18, 1e30, 1e-38]))
        sizes[2:] = (float(rng.choice([1e-38, 1.0, 1e15])) for _ in range(2))
    shapes = ((h, n, d), (h_kv, m, d), (h_kv, m, d_v), (h, n, d_v))
    with np.errstate(over="ignore"):
        arrays = [quant(rng.standard_normal(s) * size, fmt).astype(F32) for s, size in zip(shapes, sizes, strict=True)]
    if rng.random() < 0.3:  # values of one sign, whose errors add up
        arrays[2] = np.abs(arrays[2])
    spec, extra = Spec(), {}
    if meaning == "softcap":
        spec = Spec(softcap=float(rng.choice([0.5, 4.0])))
    elif meaning == "bias":
        extra["bias"] = quant(rng.standard_normal((h, n, m)) * 3, fmt).astype(F32)
    elif meaning == "slopes":
        extra["alibi_slopes"] = np.array([0.5, 0.0625], F32)
    elif meaning == "sink":
        extra["sink"] = np.array([0.5, -2.0], F32)
    elif meaning == "causal":
        spec = Spec(causal="bottom-right", window=(11, 0))
    elif meaning == "mask":
        extra["mask"] = rng.random((h, n, m)) < 0.6
    elif meaning == "lengths":
        extra["key_lengths"] = int(rng.integers(0, m + 1))
    elif meaning == "means":
        extra["mask"] = rng.random((h, n, m)) < 0.1
        spec = Spec(empty_row="mean")
    elif meaning == "scale":
        spec = Spec(scale=float(rng.choice([0.0, 1.0, 2.0**-9, 3.3])))
    return arrays, spec, extra


def attack(entries: int, seed: int, names: tuple[str, ...] = tuple(ALGORITHMS)) -> Result:
    """Judge emulated gradients until `entries` were looked at."""
    rng, result, turn = np.random.default_rng(seed), Result(), 0
    while result.checks < entries:
        name, meaning = names[turn % len(names)], MEANINGS[int(rng.integers(len(MEANINGS)))]
        turn += 1
        fmt, alg = ALGORITHMS[name]
        (q, k, v, go), spec, extra = draw(rng, fmt, meaning)
        if not all(np.isfinite(x).all() for x in (q, k, v, go)):
            continue
        if isinstance(alg, Flash) and alg.base2 and spec.scale == 0:
            continue
        got = emulated_attention_backward(go, q, k, v, spec, alg, **extra)
        exact = certify(q, k, v, spec, grad_output=go, tier="abs", **extra)
        tols = tolerance(q, k, v, spec, alg, grad_output=go, **extra).gradients
        for grad, tol in tols.items():
            y, e = getattr(got, grad), getattr(exact, grad)
            ok = tol.allows(y, e.mid, e.rad)
            result.checks += ok.size
            result.predicted += int(tol.overflow.sum())
            usable = np.isfinite(tol.total) & (tol.total > 0) & np.isfinite(y) & np.isfinite(e.rad) & ~tol.overflow
            error = (np.abs(y - e.mid) - e.rad)[usable]
            share = error / tol.total[usable]
            for source, part in tol.sources.items():
                if (error > (tol.total[usable] - part[usable]) * (1 + 1e-9)).any():
                    result.needed.add(source)
            result.shares[f"{name}, {grad}"] = max(
                result.shares.get(f"{name}, {grad}", 0.0), float(share.max(initial=0.0))
            )
            if not ok.all():
                result.violations.append(f"{name}, {grad}, {meaning}, turn {turn}: {share.max(initial=np.inf):.3g}")
    return result
