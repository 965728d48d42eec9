"""How well checks tell right from wrong: ours beside the rules of other projects, in one run.

    python benchmarks/checking.py                  faults caught and false alarms, by rule (NumPy only)
    python benchmarks/checking.py --peers          the same, torch, JAX and ONNX Runtime among the correct kernels
    python benchmarks/checking.py --alarms 0.2     "suspicious": the statistic on correct kernels (1: about two hours)
    python benchmarks/checking.py --whole 200      that many whole quick checks of correct kernels
    python benchmarks/checking.py --findings       the figures of reports/findings.md (where torch is installed)
    --write                                        also writes its part of benchmarks/checking.md

Each rule runs as its project runs it: on its own kind of inputs, and at its own tolerance, with the faulty
implementations of tests/verify/faulty.py as subjects. "Asked" are the faults that a call f(q, k, v) alone can show.
"""

from __future__ import annotations

import argparse
import functools
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
from tests.verify.small_defects import kernel
from verify.checking.allowance import parse_algorithm
from verify.checking.calls import Array, Call, Reply, dtype_of
from verify.checking.statistics import (
    TESTS,
    Draw,
    draws,
    forward_sample,
    gradient_sample,
    judged,
    threshold_probability,
)
from verify.peers import own

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


# Runs drawn at --alarms 1; a gradient run takes about a second.
RUNS = {"quick": 20000, "full": 1000, "gradients": 1000}
PAGE = Path(__file__).parent / "checking.md"
TITLE = "# Checks side by side"
ABOUT = {
    "Faults caught and false alarms": """`python benchmarks/checking.py --write`

Each rule runs on its own kind of inputs and at its own tolerance; the subjects are the faulty and the correct
implementations of `tests/verify`. The first lines of a dtype ask the faults that a call f(q, k, v) alone can show;
"every fault" are all of that dtype, masks, variants and gradients among them, which only `attnproof check` asks.""",
    "False alarms of the statistics": """`python benchmarks/checking.py --alarms FRACTION --dtype DTYPE --write`

A test is called suspicious when it is beyond its threshold on two inputs drawn independently. Here the first of the
two is drawn many times on correct kernels, without the rest of a check. A false alarm needs the same test twice: its
probability is at most Σ p² over a run's tests and at most P², p of one test and P of any on one draw. The last column
is the smaller of the two, from upper limits of p and P (Clopper and Pearson, 95 % together). A run states 1e-4.""",
    "Whole checks of correct kernels": "`python benchmarks/checking.py --whole RUNS --write`",
}


def write(section: str, part: str, lines: list[str]) -> None:
    """Put `lines` on the page, in place of what that part of that section held; the rest stays."""
    held: dict[str, dict[str, list[str]]] = {name: {} for name in ABOUT}
    at: list[str] = []
    where = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []:
        if line.startswith("## "):
            where, at = line[3:], []
        elif line.startswith("### ") and where in held:
            at = held[where].setdefault(line[4:], [])
        else:
            at.append(line)
    held[section][part] = lines
    text = [TITLE]
    for name, parts in held.items():
        if parts:
            text += ["", f"## {name}", "", ABOUT[name]]
        for title, shown in parts.items():
            text += ["", f"### {title}", "", *"\n".join(shown).strip().splitlines()]
    PAGE.write_text("\n".join(text) + "\n", encoding="utf-8")


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


def upper_limit(count: int, draws: int, beyond: float = 0.05) -> float:
    """Clopper and Pearson's upper limit of a probability met `count` times of `draws`, exceeded with `beyond`."""
    from scipy import special

    return 1.0 if count >= draws else float(special.betaincinv(count + 1, draws - count, 1 - beyond))


def null_kernels() -> list[tuple[str, str, Any, str | None, Any]]:
    """(name, dtype, forward, declared algorithm, backward or None): correct, in several orders and formats."""
    from compute import emulated_attention
    from compute.roundings import Eager

    def emulated(algorithm: Any, dtype: str) -> Any:
        def run(q: Array, k: Array, v: Array) -> Array:
            wide = (x.astype(np.float32) for x in (q, k, v))
            return np.asarray(emulated_attention(*wide, algorithm=algorithm)).astype(dtype_of(dtype))

        return run

    backward = tests.verify.faulty_gradients.backward
    found: list[tuple[str, str, Any, str | None, Any]] = []
    for dtype in ("float32", "float64"):
        found += [
            ("blocks of 128", dtype, kernel(), None, backward),
            ("sums in order", dtype, kernel("sums in order", 2048), None, None),
            ("compute.attention", dtype, own.attention, None, own.backward),
        ]
    found.append(("weights in tf32", "float32", kernel(weights="tf32"), "flash:block=128,weights=tf32", None))
    found.append(("bf16x3", "float32", kernel(products="bf16x3"), "flash:block=128,products=bf16x3", None))
    for dtype in ("float16", "bfloat16"):
        declared = f"flash:block=128,weights={dtype}"
        stored = Eager(weights=dtype, scores=dtype, output=dtype)
        found += [
            ("flash, blocks of 128", dtype, kernel(weights=dtype), declared, backward),
            ("flash, blocks of 64", dtype, kernel(block=64, weights=dtype), declared, None),
            ("compute.attention", dtype, own.attention, declared, own.backward),
            ("eager, stored scores", dtype, emulated(stored, dtype), f"eager:weights={dtype},scores={dtype}", None),
        ]
    return found


def null_draws(fraction: float, dtype: str) -> list[str]:
    """The statistic on correct kernels, drawn anew each time: how often a test of a run is beyond its threshold.

    A false alarm needs the same test beyond on two independent draws: its probability is at most Σ p² over the tests,
    p their probabilities on one draw, and at most P², P that of any of them. Both are bounded from the counts, and the
    smaller bound is said (each at 97.5 %, the p of one run together).
    """
    lines = Shown(("| kernel | run | runs drawn | beyond a threshold | of them by test | a false alarm, at most |",
                   "|---|---|---|---|---|---|"))  # fmt: skip
    pooled: dict[str, tuple[Array, Array]] = {}
    for name, _, forward, algorithm, backward in (row for row in null_kernels() if row[1] == dtype):
        for mode, most in RUNS.items():
            if mode == "gradients" and backward is None:
                continue
            asked = list(draws(dtype, mode == "quick", mode == "gradients"))
            level = threshold_probability(asked)
            beyond = np.array([
                [failed for i, one in enumerate(asked)
                 for failed in null_tests(forward, backward, dtype, algorithm, one, level, [seed, i, 2026])]
                for seed in range(max(int(most * fraction), 1))
            ])  # fmt: skip
            lines.append(f"| {name} | {mode} | {alarm_limit(beyond)} |")
            pooled[mode] = np.concatenate([pooled[mode], beyond]) if mode in pooled else beyond
    for mode, beyond in pooled.items():
        lines.append(f"| **all of {dtype}** | {mode} | {alarm_limit(beyond)} |")
    return lines


def alarm_limit(beyond: Array) -> str:
    """Cells of a table from booleans (runs, tests): counts, and the upper limit of a run's false-alarm probability."""
    runs, tests = beyond.shape
    by_test = beyond.sum(0)
    any_of_them = int(beyond.any(1).sum())
    each = sum(upper_limit(int(count), runs, 0.025 / tests) ** 2 for count in by_test)
    limit = min(each, upper_limit(any_of_them, runs, 0.025) ** 2)
    kinds = ", ".join(f"{name} {by_test[i :: len(TESTS)].sum()}" for i, name in enumerate(TESTS))
    return f"{runs} | {any_of_them} | {kinds} | {limit:.1g}"


def null_tests(
    forward: Any, backward: Any, dtype: str, algorithm: str | None, one: Draw, level: float, seed: list[int]
) -> list[bool]:
    """Which tests of one draw are beyond their thresholds."""
    rng = np.random.default_rng(seed)
    q, k, v, g = (rng.standard_normal((1, 1, one.n, one.d)) for _ in range(4))
    q, k, v, g = (x.astype(dtype_of(dtype)) for x in (q * one.size, k, v, g))
    call, judge = Call(q, k, v), parse_algorithm(algorithm, dtype)
    if one.graded:
        call = call.with_(grad_output=g)
        samples = gradient_sample(call, Reply(gradients=backward(q, k, v, g)), judge)
    else:
        samples = forward_sample(call, Reply(output=forward(q, k, v)), judge)
    return [f.value > f.threshold for s in samples for f in judged(s, level)]


def whole_runs(runs: int) -> list[str]:
    """Whole quick checks of correct kernels, each with its own seed: how many are called suspicious."""
    subjects = [row for row in null_kernels() if row[0] != "eager, stored scores"]
    count = 0
    for seed in range(runs):
        _, dtype, forward, algorithm, _ = subjects[seed % len(subjects)]
        result = verify.check(forward, dtype=dtype, algorithm=algorithm, quick=True, seed=seed)
        count += result.status != "agrees"
    limit = upper_limit(count, runs)
    return Shown([f"{count} of {runs} whole quick checks of correct kernels did not agree (at most {limit:.2g})."])


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
            lean = (sample.s * np.sign(sample.value)).mean(1)
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
    parser.add_argument("--alarms", type=float, default=0, metavar="FRACTION")
    parser.add_argument("--dtype", choices=("float64", *DTYPES), action="append")
    parser.add_argument("--whole", type=int, default=0, metavar="RUNS")
    parser.add_argument("--findings", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.findings:
        print("\n".join(findings()))
        return
    parts: list[tuple[str, str, Callable[[], list[str]]]] = []
    for dtype in (args.dtype or ("float64", *DTYPES)) if args.alarms else ():
        part = f"{dtype}, --alarms {args.alarms:g}"
        parts.append(("False alarms of the statistics", part, functools.partial(null_draws, args.alarms, dtype)))
    if args.whole:
        parts.append(("Whole checks of correct kernels", "Quick checks", lambda: whole_runs(args.whole)))
    if not parts:
        parts.append(("Faults caught and false alarms", "By rule", lambda: compare(args.peers)))
    for section, part, make in parts:
        lines = make()
        if args.write:
            write(section, part, lines)


if __name__ == "__main__":
    main()
