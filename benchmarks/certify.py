"""Cost and width of certificates, beside plain and tiled NumPy, torch, Arb and mpmath's intervals, in one run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/certify.py [--quick] [--json FILE]

Process time, medians; inputs are standard normal in float64, the same for all. "radius" is the largest radius over the
largest output. Torch and precise-numpy (interval arrays; `pip install precise-numpy`) are timed only where they are
installed, Arb and mpmath only up to a size, and extrapolated from there by n² (said so in the table).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from compute import canaries
from compute.arb import available, outputs
from compute.certificate import certify
from compute.heads import split


def plain(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T * (1 / math.sqrt(q.shape[1]))
    s -= s.max(axis=1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=1, keepdims=True)
    return s @ v


def plain_both(q: Any, k: Any, v: Any, go: Any) -> Any:
    tau = 1 / math.sqrt(q.shape[1])
    s = q @ k.T * tau
    s -= s.max(axis=1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=1, keepdims=True)
    z = s @ v
    dv, g = s.T @ go, go @ v.T
    g -= (go * z).sum(axis=1, keepdims=True)
    g *= s
    return z, g @ k * tau, g.T @ q * tau, dv


def tiled(q: Any, k: Any, v: Any, rows: int = 128) -> Any:
    out, kt = np.empty((len(q), v.shape[1])), np.ascontiguousarray(k.T)
    buffer = np.empty((rows, len(k)))
    q = q * (1 / math.sqrt(q.shape[1]))
    for i in range(0, len(q), rows):
        s = buffer[: len(q[i : i + rows])]
        np.matmul(q[i : i + rows], kt, out=s)
        s -= s.max(axis=1, keepdims=True)
        np.exp(s, out=s)
        out[i : i + rows] = (s @ v) / s.sum(axis=1, keepdims=True)
    return out


def timed(run: Callable[[], Any], least: float = 0.2, rounds: int = 5) -> tuple[float, Any]:
    """Median process time of one call, and its result."""
    result = run()
    start = time.process_time()
    run()
    count = max(1, min(200, int(least / max(time.process_time() - start, 1e-6))))
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(count):
            result = run()
        times.append((time.process_time() - start) / count)
    return sorted(times)[len(times) // 2], result


def against(base: Callable[[], Any], run: Callable[[], Any], rounds: int) -> tuple[float, float, Any]:
    """(time of run over time of base, seconds of run, its result), the two in turn, so that both see the same load."""
    pairs = [(timed(base, 0.1, 1)[0], *timed(run, 0.1, 1)) for _ in range(rounds)]
    first, second = (sorted(p[i] for p in pairs)[rounds // 2] for i in (0, 1))
    return second / first, second, pairs[-1][2]


def relative(e: Any) -> float:
    return float(np.max(e.rad) / np.abs(e.mid).max())


def arb_seconds(q: Any, k: Any, v: Any, rows: int) -> float | None:
    """Seconds for all rows at 64 bits, from some of them."""
    if not available():
        return None
    head = split(q, k, v).items[0]

    def seconds(count: int) -> float:
        start = time.process_time()
        outputs(head, np.arange(count), prec=64)
        return time.process_time() - start

    if rows >= len(q):
        return seconds(len(q))
    first = seconds(rows)  # the keys' conversion is in both, so that it drops out
    return first + max(seconds(4 * rows) - first, 0.0) * (len(q) - rows) / (3 * rows)


def mpmath_seconds(d: int, n: int) -> float:
    """Seconds of mpmath.iv for n queries and keys, from 8 of each, by n²."""
    import mpmath

    rng, small = np.random.default_rng(1), 8
    iv = mpmath.iv
    q, k, v = (rng.standard_normal((small, d)).tolist() for _ in range(3))
    start = time.process_time()
    for row in q:
        w = [iv.exp(sum((iv.mpf(a) * b for a, b in zip(row, key, strict=True)), iv.mpf(0)) / iv.sqrt(d)) for key in k]
        total = sum(w, iv.mpf(0))
        for c in range(d):
            _ = sum((x * value[c] for x, value in zip(w, v, strict=True)), iv.mpf(0)) / total
    return (time.process_time() - start) * (n / small) ** 2


def torch_times(q: Any, k: Any, v: Any, rounds: int) -> float | None:
    """Time of torch's scaled_dot_product_attention in float64 over plain NumPy's; None where it isn't installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    arrays = [torch.from_numpy(x)[None, None] for x in (q, k, v)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return against(lambda: plain(q, k, v), lambda: sdpa(*arrays), rounds)[0]


def precise_numpy(q: Any, k: Any, v: Any) -> dict[str, float] | None:
    """Attention in precise-numpy's interval arrays: time over plain NumPy's, and radius; None without it."""
    try:
        import precise_numpy as interval
    except ImportError:
        return None
    a, b, c = (interval.from_numpy(x) for x in (q, k, v))
    tau = 1 / math.sqrt(q.shape[1])

    def run() -> Any:
        s = (a @ b.transpose()) * tau
        w = (s - interval.from_numpy(np.asarray(s).max(axis=1, keepdims=True))).exp()
        sums = [w @ interval.from_numpy(np.ones((len(k), 1))), w @ c]
        return sums[1] / sums[0]

    times, seconds, got = against(lambda: plain(q, k, v), run, 1)
    return {"times": times, "ms": seconds * 1e3, "radius": got.max_radius() / float(np.abs(np.asarray(got)).max())}


def cell(n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    q, k, v, go = (rng.standard_normal((n, d)) for _ in range(4))
    certify(q, k, v)
    rounds = 3 if n >= 4096 else 5
    base, _ = timed(lambda: plain(q, k, v), rounds=rounds)
    row: dict[str, Any] = {"n": n, "d": d, "plain_ms": base * 1e3}
    row["tiled"] = against(lambda: plain(q, k, v), lambda: tiled(q, k, v), rounds)[0]
    for name, options in (
        ("norm", {"tier": "norm"}),
        ("to_1e-12", {"target": 1e-12}),
        ("abs", {"tier": "abs"}),
        ("float32_rounded", {"target": "f32"}),
        ("tier2", {"tier": "tight"}),
    ):
        times, seconds, got = against(
            lambda: plain(q, k, v), lambda options=options: certify(q, k, v, **options), rounds
        )
        row[name] = {"times": times, "ms": seconds * 1e3, "radius": relative(got.output)}
        if "target" in options:
            row[name]["undecided"] = got.undecided
    times, seconds, got = against(
        lambda: plain_both(q, k, v, go), lambda: certify(q, k, v, grad_output=go, tier="norm"), rounds
    )
    widths = {name: relative(getattr(got, name)) for name in ("output", "dq", "dk", "dv")}
    row["backward"] = {"ms": seconds * 1e3, "times": times, "radius": widths}
    for name, options in (("backward_float32_rounded", {"target": "f32"}), ("backward_tier2", {"tier": "tight"})):
        times, seconds, got = against(
            lambda: plain_both(q, k, v, go),
            lambda options=options: certify(q, k, v, grad_output=go, **options),
            min(rounds, 3),
        )
        gradients = {part: getattr(got, part) for part in ("output", "dq", "dk", "dv")}
        row[name] = {
            "ms": seconds * 1e3,
            "times": times,
            "radius": {part: relative(e) for part, e in gradients.items()},
            "undecided": sum(int(e.rounded("float32")[1].sum()) for e in gradients.values()),
        }
    row["torch"] = torch_times(q, k, v, rounds)
    row["precise_numpy"] = precise_numpy(q, k, v)
    arb_time = arb_seconds(q, k, v, n if n <= 64 else 8)
    row["arb_seconds"] = arb_time
    row["arb_over_norm"] = None if arb_time is None else arb_time / (row["norm"]["ms"] / 1e3)
    row["mpmath_iv_seconds_extrapolated"] = mpmath_seconds(d, n)
    return row


def show(row: dict[str, Any]) -> str:
    parts = [f"n={row['n']:5d} d={row['d']:3d}: plain {row['plain_ms']:.3g} ms, tiled {row['tiled']:.2f}×"]
    if row["torch"] is not None:
        parts.append(f"torch {row['torch']:.2f}×")
    for name in ("norm", "to_1e-12", "abs", "float32_rounded", "tier2"):
        x = row[name]
        tail = f", {x['undecided']} undecided" if "undecided" in x else ""
        parts.append(f"{name} {x['times']:.2f}× ({x['ms']:.3g} ms) {x['radius']:.1e}{tail}")
    for name in ("backward", "backward_float32_rounded", "backward_tier2"):
        b = row[name]
        widths = " ".join(f"{k} {x:.1e}" for k, x in b["radius"].items())
        tail = f", {b['undecided']} not decided to float32" if "undecided" in b else ""
        parts.append(f"{name.replace('backward', 'forward+backward')} {b['times']:.2f}× {widths}{tail}")
    if row["precise_numpy"] is not None:
        x = row["precise_numpy"]
        parts.append(f"precise-numpy {x['times']:.1f}× ({x['ms']:.3g} ms) {x['radius']:.1e}")
    if row["arb_seconds"] is not None:
        parts.append(f"Arb {row['arb_seconds']:.3g} s ({row['arb_over_norm']:.0f}× of norm)")
    parts.append(f"mpmath.iv about {row['mpmath_iv_seconds_extrapolated']:.3g} s")
    return "\n   ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 128, 1024 and d = 64 only")
    parser.add_argument("--only", type=int, metavar="N", help="one length, d = 64")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    print("environment:", canaries.environment())
    lengths = [args.only] if args.only else ([128, 1024] if args.quick else [16, 64, 128, 256, 512, 1024, 2048, 4096])
    rows = []
    for d in (64,) if args.quick or args.only else (64, 128):
        for n in lengths:
            rows.append(cell(n, d))
            print(show(rows[-1]), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
