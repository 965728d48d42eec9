"""How well checks tell right from wrong: ours beside the rules of other projects, in one run.

    python benchmarks/checking.py                  faults caught and false alarms, by rule (NumPy only)
    python benchmarks/checking.py --peers          the same, torch, JAX and ONNX Runtime among the correct kernels
    python benchmarks/checking.py --alarms 200     "suspicious" over that many runs of correct kernels, binomial test
    python benchmarks/checking.py --findings       the figures of reports/findings.md (where torch is installed)
    --write                                        also writes benchmarks/checking.md

Each rule runs as its project runs it: on its own kind of inputs, and at its own tolerance, with the faulty
implementations of tests/verify/faulty.py as subjects. "Asked" are the faults that a call f(q, k, v) alone can show.
"""

from __future__ import annotations

import argparse
import inspect
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import tests.verify.faulty_gradients
import verify
from tests.verify.correct import CORRECT
from tests.verify.faulty import FAULTS, scores, softmax
from verify.checking.allowance import parse_algorithm
from verify.checking.calls import Array, Call, Reply, dtype_of
from verify.checking.statistics import FALSE_ALARM, forward_sample, gradient_sample, judged

Rule = Callable[[Array, Array, Array, Array, Array], bool]
DTYPES = ("float32", "float16", "bfloat16")


def exact(q: Array, k: Array, v: Array) -> Array:
    s = scores(q.astype(np.float64), k.astype(np.float64))
    return softmax(s) @ v.astype(np.float64)


def low_precision(q: Array, k: Array, v: Array) -> Array:
    """Another low-precision run: every step stored in the dtype."""
    kind = q.dtype
    s = scores(q, k).astype(kind).astype(np.float32)
    p = softmax(s).astype(kind).astype(np.float32)
    return (p @ v.astype(np.float32)).astype(kind).astype(np.float64)


def close(rtol: float, atol: float) -> Rule:
    return lambda got, right, q, k, v: bool((np.abs(got - right) <= atol + rtol * np.abs(right)).all())


def assert_close(got: Array, right: Array, q: Array, k: Array, v: Array) -> bool:
    """torch.testing.assert_close: its default tolerances of the dtype."""
    rtol, atol = {"float32": (1.3e-6, 1e-5), "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5)}[q.dtype.name]
    return close(rtol, atol)(got, right, q, k, v)


def fudge(factor: float) -> Rule:
    """At most `factor` times the error of another low-precision run, and a little."""

    def rule(got: Array, right: Array, q: Array, k: Array, v: Array) -> bool:
        other = float(np.abs(low_precision(q, k, v) - right).max())
        return float(np.abs(got - right).max()) <= factor * other + 1e-5 or bool(np.isnan(right).any())

    return rule


def normal(rng: np.random.Generator) -> tuple[Array, ...]:
    return tuple(rng.standard_normal((1, 2, n, 32)) for n in (96, 96, 96))


def uniform(rng: np.random.Generator) -> tuple[Array, ...]:
    return tuple(rng.random((1, 2, n, 32)) for n in (96, 96, 96))


RULES: dict[str, tuple[Rule, Callable[..., tuple[Array, ...]]]] = {
    "torch.testing.assert_close": (assert_close, normal),
    "2 × another low-precision run (flash-attention)": (fudge(2.0), normal),
    "fudge factor, inputs in [0, 1) (PyTorch)": (fudge(1.1), uniform),
    "atol = rtol = 1e-2 (JAX, vLLM)": (close(1e-2, 1e-2), normal),
    "rtol = 1e-3, inputs in [0, 1) (ONNX)": (close(1e-3, 1e-7), uniform),
}


def passes(rule: Rule, make: Callable[..., tuple[Array, ...]], function: Any, dtype: str, seed: int = 0) -> bool:
    """Whether a rule lets an implementation through."""
    q, k, v = (x.astype(dtype_of(dtype)) for x in make(np.random.default_rng(seed)))
    try:
        got = np.asarray(function(q, k, v)).astype(np.float64)
    except Exception:
        return False
    return got.shape == v.shape and rule(got, exact(q, k, v), q, k, v)


def checked(function: Any, dtype: str, **more: Any) -> verify.CheckResult:
    return verify.check(function, dtype=dtype, quick=True, first=True, **more)


def gradcheck(function: Any, backward: Any, dtype: str) -> bool:
    """One-sided and central differences, as torch.autograd.gradcheck does: eps 1e-6, atol 1e-5, rtol 1e-3."""
    eps, rng = 1e-6, np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, n, 4)).astype(dtype_of(dtype)) for n in (5, 7, 7))
    g = rng.standard_normal((1, 2, 5, 4)).astype(q.dtype)
    found = backward(q, k, v, g)
    found = found if isinstance(found, dict) else dict(zip("qkv", found, strict=False))
    for name, x in {"q": q, "k": k, "v": v}.items():
        for index in list(np.ndindex(x.shape))[::7]:
            up, down = ({"q": q, "k": k, "v": v} for _ in range(2))
            up[name], down[name] = x.copy(), x.copy()
            up[name][index] += eps
            down[name][index] -= eps
            a, b = (np.asarray(function(**y)).astype(np.float64) for y in (up, down))
            slope = float(((a - b) * g.astype(np.float64)).sum() / (2 * eps))
            if not abs(slope - float(found[name][index])) <= 1e-5 + 1e-3 * abs(slope):
                return False
    return True


HEAD = """# Checks side by side

Written by `python benchmarks/checking.py --alarms 400 --write`.

Each rule runs on its own kind of inputs and at its own tolerance; the subjects are the faulty and the correct
implementations of `tests/verify`. The first lines of a dtype ask the faults that a call f(q, k, v) alone can show;
"every fault" are all of that dtype, masks, variants and gradients among them, which only `attnproof check` asks.

"""


class Shown(list[str]):
    """Lines that are printed as they come."""

    def append(self, line: str) -> None:
        print(line, flush=True)
        super().append(line)


def compare(peers: bool) -> list[str]:
    """Faults let through and false alarms, a line a rule."""
    plain = [f for f in FAULTS if len(inspect.signature(f.function).parameters) == 3 and f.spec is None]
    backward = [f for f in FAULTS if f.backward is not None and f.layout == "bhnd" and f.spec is None]
    right: dict[str, Any] = {n: f for n, (f, spec) in CORRECT.items() if spec is None}
    lines = Shown(("| rule | dtype | faults caught | of | false alarms | of |", "|---|---|---|---|---|---|"))
    for dtype in DTYPES:
        asked = [f for f in plain if dtype in f.dtypes]
        for name, (rule, make) in RULES.items():
            caught = sum(not passes(rule, make, f.function, dtype) for f in asked)
            alarms = sum(not passes(rule, make, f, dtype) for f in right.values())
            lines.append(f"| {name} | {dtype} | {caught} | {len(asked)} | {alarms} | {len(right)} |")
        every = [f for f in FAULTS if dtype in f.dtypes]
        caught = sum(
            not checked(f.function, dtype, spec=f.spec, backward=f.backward, layout=f.layout).ok for f in every
        )
        alarms = sum(not checked(f, dtype, spec=spec).ok for f, spec in CORRECT.values())
        some = sum(not checked(f.function, dtype).ok for f in asked)
        none = sum(not checked(f, dtype).ok for f in right.values())
        lines.append(
            f"| attnproof check --quick, same faults | {dtype} | {some} | {len(asked)} | {none} | {len(right)} |"
        )
        ours = f"**{caught}** | {len(every)} | **{alarms}** | {len(CORRECT)} |"
        lines.append(f"| **attnproof check --quick, every fault** | {dtype} | {ours}")
    for dtype in ("float64", "float32"):
        caught = sum(not gradcheck(f.function, f.backward, dtype) for f in backward)
        good = gradcheck(tests.verify.faulty_gradients.forward, tests.verify.faulty_gradients.backward, dtype)
        lines.append(
            f"| gradcheck's rule, gradients only | {dtype} | {caught} | {len(backward)} | {int(not good)} | 1 |"
        )
    if peers:
        for target in ("torch.sdpa", "torch.mha", "torch.sdpa.math", "jax.dot_product_attention", "onnxruntime"):
            for dtype in DTYPES:
                if target == "onnxruntime" and dtype == "bfloat16":
                    continue
                result = verify.check(target, dtype=dtype)
                wrong = sum(f.verdict != "suspicious" for f in result.findings)
                doubts = ", ".join(f.kind for f in result.findings if f.verdict == "suspicious") or "none"
                lines.append(f"| attnproof check {target} | {dtype} | – | – | {wrong} | suspicious: {doubts} |")
    return lines


def alarm_rate(runs: int) -> list[str]:
    """Runs of correct 16-bit kernels: how many are called suspicious, against the stated probability."""
    from scipy import stats

    from tests.verify.test_check_power import flash

    count = 0
    for seed in range(runs):
        dtype = ("float16", "bfloat16")[seed % 2]
        rng = np.random.default_rng(1000 + seed)
        size = (1.0, 3.5, 2.0)[seed % 3]
        q, k, v = (rng.standard_normal((1, 1, 512, 64)) for _ in range(3))
        call = Call(*((x * s).astype(dtype_of(dtype)) for x, s in ((q, size), (k, 1), (v, 1))))
        judge = parse_algorithm(f"flash:weights={dtype}", dtype)
        reply = Reply(output=flash(call, "none", (64, 96, 128)[seed % 3]))
        found = [f for s in forward_sample(call, reply, judge) for f in judged(s, FALSE_ALARM / 4)]
        count += any(f.value > f.threshold for f in found)
    p = float(stats.binomtest(count, runs, FALSE_ALARM, alternative="greater").pvalue)
    return [f"{count} of {runs} runs of correct kernels were suspicious; stated {FALSE_ALARM:g} a run, p = {p:.3g}"]


def findings() -> list[str]:
    """The figures of reports/findings.md."""
    from verify.checking.runner import Local
    from verify.peers.torch_sdpa import sdpa

    subject = Local(sdpa, like="torch")
    lines = ["| float16 forward, scores × | mean of error·sign/expected | standard errors |", "|---|---|---|"]
    for size in (0.5, 1.0, 2.0, 3.0, 4.0):
        leans, sigmas = [], []
        for seed in range(4):
            rng = np.random.default_rng(100 + seed)
            q, k, v = (rng.standard_normal((1, 1, 1024, 64)) for _ in range(3))
            call = Call(*((x * s).astype(np.float16) for x, s in ((q, size), (k, 1), (v, 1))))
            (sample,) = forward_sample(call, subject.ask(call), parse_algorithm("flash:weights=float16", "float16"))
            lean = (sample.s * sample.sign).mean(1)
            leans.append(float(lean.mean()))
            sigmas.append(float(lean.mean() / (lean.std(ddof=1) / math.sqrt(len(lean)))))
        lines.append(f"| {size:g} | {np.mean(leans):.4f} | {np.min(sigmas):.1f} to {np.max(sigmas):.1f} |")
    lines += ["", "| backward | n | RMS of dQ | RMS of dK | RMS of dV |", "|---|---|---|---|---|"]
    for dtype in ("bfloat16", "float16"):
        for n in (128, 512, 1024, 2048, 4096):
            rng = np.random.default_rng(7)
            q, k, v, g = (rng.standard_normal((1, 1, n, 64)).astype(dtype_of(dtype)) for _ in range(4))
            call = Call(q, k, v, grad_output=g)
            samples = gradient_sample(call, subject.ask(call), parse_algorithm(f"flash:weights={dtype}", dtype))
            shown = " | ".join(f"{math.sqrt(float((s.s**2).mean())):.2f}" for s in samples)
            lines.append(f"| {dtype} | {n} | {shown} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--alarms", type=int, default=0, metavar="RUNS")
    parser.add_argument("--findings", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.findings:
        print("\n".join(findings()))
        return
    lines: list[str] = compare(args.peers)
    for line in alarm_rate(args.alarms) if args.alarms else []:
        lines.append("")
        lines.append(line)
    if args.write:
        (Path(__file__).parent / "checking.md").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
