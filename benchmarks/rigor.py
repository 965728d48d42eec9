"""Attack on every guarantee of compute's enclosures and tolerances, against ball arithmetic.

    python benchmarks/rigor.py [--inputs 20000] [--entries 200000] [--seed 0] [--json FILE]

Enclosures: random inputs of all families of tests/compute/families.py, both tiers, output, log-sum-exp and gradients,
held to Arb at 200 bits (Tier 2: 300). A violation is proved: the ball's nearest end lies outside the radius.
Tolerances: runs of low-precision algorithms held to certified values. Exit code 1 on any violation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from compute import slices
from compute.bounds import Eager, Flash, tolerance
from compute.certificate import certify
from compute.tier1_operands import Settings
from tests.compute import lowprec
from tests.compute.cases import shares
from tests.compute.families import FAMILIES, opposite_case, shapes, wild_case
from tests.compute.gradient_attack import attack


def enclosures(inputs: int, seed: int) -> dict[str, object]:
    """Check both tiers on random inputs; returns counts and the largest excess of each quantity."""
    rng = np.random.default_rng(seed)
    checks, violations, worst = 0, 0, Counter[str]()
    names, start = list(FAMILIES), time.process_time()
    for i in range(inputs):
        wild = i % 8 == 7  # every eighth input has entries anywhere in float64's range
        name = "wild" if wild else names[i % len(names)]
        if wild:
            case, grad = wild_case(rng) if i % 16 == 7 else opposite_case(rng)
        else:
            n, m, d, d_v = shapes(rng)
            case = FAMILIES[name](rng, n, m, d, d_v)
            grad = rng.standard_normal((n, d_v)) * rng.choice([1.0, 1e-3, 1e3])
        refine = "all" if rng.random() < 0.5 else None
        settings = Settings(block=int(rng.choice([2, 4, 8, 128])), tile=int(rng.choice([1, 2, 128])), refine=refine)
        slices.BLOCK = settings.block  # Tier 2's, so that small inputs have several blocks too
        for what, value in shares(case, grad, settings, prec=6000 if wild else 200):
            checks += 1
            worst[what] = max(worst[what], value)
            if value > 1:
                violations += 1
                print(f"VIOLATION {what} {name} input {i}: {value}", flush=True)
        if (i + 1) % 2000 == 0:
            print(f"{i + 1} inputs, {checks} checks, {violations} violations", file=sys.stderr, flush=True)
    return {
        "inputs": inputs, "families": len(names) + 2, "checks": checks, "violations": violations,
        "largest_share_of_the_radius": dict(worst), "seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def _subjects(fmt: str, rng: np.random.Generator):
    acc = np.float64 if fmt == "float64" else np.float32
    name, out = np.dtype(acc).name, "bfloat16" if "float8" in fmt else fmt
    stored = None if fmt in ("float64", "float32") else fmt
    block = int(rng.choice([8, 32, 64]))
    common = {"weights": fmt, "output": out, "accumulate": name, "exp_ulp": 1.5}
    low = {"weights": fmt, "output": out, "acc": acc}
    yield "flash", Flash(**common, block=block), lambda *a, keep: lowprec.flash(*a, **low, block=block, keep=keep)
    yield (
        "flash, finished blocks",
        Flash(**common, block=block, sums="blocks"),
        lambda *a, keep: lowprec.flash(*a, **low, block=block, keep=keep),
    )
    yield (
        "flash, exp2",
        Flash(**common, block=block, base2=True),
        lambda *a, keep: lowprec.flash(*a, **low, block=block, base2=True, keep=keep),
    )
    yield "eager", Eager(**common, scores=stored), lambda *a, keep: lowprec.eager(*a, **low, fmt=stored, keep=keep)
    yield (
        "eager, unshifted",
        Eager(**common, scores=stored, shifted=False),
        lambda *a, keep: lowprec.eager(*a, **low, fmt=stored, shifted=False, keep=keep),
    )
    if stored:
        yield (
            "every operation stored",
            Eager(**common, scores=stored, score_stores=2, every_op=True),
            lambda *a, keep: lowprec.eager(*a, **low, fmt=stored, style="every", keep=keep),
        )


def tolerances(entries: int, seed: int) -> dict[str, object]:
    """Check a-priori bounds until `entries` outputs were judged."""
    rng = np.random.default_rng(seed)
    checks, violations, predicted = 0, 0, 0
    worst: dict[str, float] = {}
    while checks < entries:
        name = list(FAMILIES)[int(rng.integers(len(FAMILIES)))]
        n, m = int(rng.choice([1, 4, 9])), int(rng.choice([1, 2, 5, 33, 64, 130, 400]))
        d, d_v = int(rng.choice([1, 4, 16, 64])), int(rng.choice([1, 3, 8]))
        q, k, v, extras = FAMILIES[name](rng, n, m, d, d_v)
        if set(extras) - {"mask"}:
            continue
        keep = extras.get("mask")
        for fmt in lowprec.FORMATS:
            rounded = [lowprec.quant(x, fmt) for x in (q, k, v)]
            if fmt == "float64" or not all(np.isfinite(x).all() for x in rounded):
                continue  # float64 outputs are judged by the tests, against balls
            truth = certify(*rounded, mask=keep, tier="abs").output
            for what, alg, run in _subjects(fmt, rng):
                got, tol = run(*rounded, keep=keep), tolerance(*rounded, algorithm=alg, mask=keep)
                dead = np.zeros(n, bool) if keep is None else ~keep.any(axis=1)
                ok = tol.allows(got, truth.mid, truth.rad) | dead[:, None]
                checks += ok.size
                violations += int((~ok).sum())
                predicted += int(tol.overflow.sum())
                usable = np.isfinite(tol.total) & (tol.total > 0) & np.isfinite(got) & ~dead[:, None]
                share = (np.abs(got - truth.mid) - truth.rad)[usable] / tol.total[usable]
                key = f"{fmt}, {what}"
                worst[key] = max(worst.get(key, 0.0), float(share.max(initial=0.0)))
                if not ok.all():
                    print(f"VIOLATION {key} on {name}", flush=True)
    return {"entries": checks, "violations": violations, "overflow_predicted": predicted, "largest_share": worst}


def gradient_tolerances(entries: int, seed: int) -> dict[str, object]:
    """The same for gradients: a Flash backward and an Eager one in three formats."""
    rng = np.random.default_rng(seed)
    checks, violations, predicted = 0, 0, 0
    worst: dict[str, float] = {}
    while checks < entries:
        name = list(FAMILIES)[int(rng.integers(len(FAMILIES)))]
        n, m = int(rng.choice([1, 4, 40])), int(rng.choice([1, 2, 5, 33, 130]))
        d, d_v = int(rng.choice([1, 4, 16, 64])), int(rng.choice([1, 3, 8]))
        q, k, v, extras = FAMILIES[name](rng, n, m, d, d_v)
        if set(extras) - {"mask"}:
            continue
        keep = extras.get("mask")
        if keep is not None:
            keep[:, 0] = True
        go = rng.standard_normal((n, d_v)) * rng.choice([1.0, 1e-3])
        for fmt in ("float32", "float16", "bfloat16"):
            rounded = [lowprec.quant(x, fmt) for x in (q, k, v, go)]
            if not all(np.isfinite(x).all() for x in rounded):
                continue
            truth = certify(*rounded[:3], mask=keep, grad_output=rounded[3])
            stored = None if fmt == "float32" else fmt
            common = {"weights": fmt, "output": fmt, "exp_ulp": 1.5}
            for what, got, alg in (
                ("flash", lowprec.flash_backward(*rounded, fmt=fmt, block=32, keep=keep), Flash(**common, block=32)),
                ("eager", lowprec.eager_backward(*rounded, fmt=fmt, keep=keep), Eager(**common, scores=stored)),
            ):
                tols = tolerance(*rounded[:3], algorithm=alg, mask=keep, grad_output=rounded[3]).gradients
                for grad, tol in tols.items():
                    e = getattr(truth, grad)
                    ok = tol.allows(got[grad], e.mid, e.rad)
                    checks += ok.size
                    violations += int((~ok).sum())
                    predicted += int(tol.overflow.sum())
                    usable = np.isfinite(tol.total) & (tol.total > 0) & np.isfinite(got[grad]) & np.isfinite(e.rad)
                    share = (np.abs(got[grad] - e.mid) - e.rad)[usable] / tol.total[usable]
                    key = f"{fmt}, {what}, {grad}"
                    worst[key] = max(worst.get(key, 0.0), float(share.max(initial=0.0)))
                    if not ok.all():
                        print(f"VIOLATION {key} on {name}", flush=True)
    return {"entries": checks, "violations": violations, "overflow_predicted": predicted, "largest_share": worst}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20000)
    parser.add_argument("--entries", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    emulated = attack(args.entries, args.seed)
    for line in emulated.violations:
        print(f"VIOLATION emulated backward: {line}", flush=True)
    result = {
        "tolerances": tolerances(args.entries, args.seed),
        "tolerances of emulated gradients": {
            "entries": emulated.checks,
            "violations": len(emulated.violations),
            "overflow_predicted": emulated.predicted,
            "largest_share": emulated.shares,
        },
        "tolerances of gradients": gradient_tolerances(args.entries // 2, args.seed),
        "enclosures": enclosures(args.inputs, args.seed),
    }
    print(json.dumps(result, indent=1))
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(any(part["violations"] for part in result.values()))


if __name__ == "__main__":
    sys.exit(main())
