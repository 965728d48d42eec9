"""CPU speed and memory of compute.attention, beside torch's scaled_dot_product_attention in one run.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/attention.py [--quick] [--long] [--only TEXT]

Prints, for each cell, GFLOP/s of both and the ratio torch time / our time (above 1: we are faster), the geometric
means beside their bars, and the working memory that tracemalloc sees. Ours and torch's calls take turns; speeds are
medians over repetitions, a ratio is the median over neighbouring pairs; process time on one thread, wall time on two
(which only a quiet machine shows: the load is printed). Without torch only ours is timed.
--long adds one head of n = 131,072 in float32.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import compute
from compute.threads import blas_kernel

Cell = dict[str, Any]
BARS = {  # (pass, dtype, threads) -> (geometric mean, lowest cell)
    ("forward", "float32", 1): (1.0, 0.93),
    ("forward", "float32", 2): (0.95, None),
    ("forward", "float64", 1): (1.15, 1.05),
    ("backward", "float32", 1): (0.95, None),
    ("backward", "float64", 1): (1.3, None),
}


def arrays(h: int, n: int, d: int, dtype: str) -> list[Any]:
    rng = np.random.default_rng(n + d)
    return [rng.standard_normal((1, h, n, d)).astype(dtype) for _ in range(4)]


def alternate(calls: list[Callable[[], Any]], reps: int, clock: Callable[[], float]) -> list[list[float]]:
    """Seconds of each call, taken in turns after one warm-up each."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(reps):
        for call, seen in zip(calls, times, strict=True):
            start = clock()
            call()
            seen.append(clock() - start)
    return times


def torch_calls(q: Any, k: Any, v: Any, g: Any, backward: bool) -> Callable[[], Any] | None:
    try:
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa
    except ImportError:
        return None
    tq, tk, tv, tg = (torch.from_numpy(x) for x in (q, k, v, g))
    if not backward:
        return lambda: sdpa(tq, tk, tv)
    for t in (tq, tk, tv):
        t.requires_grad_(True)
    out = sdpa(tq, tk, tv)
    return lambda: torch.autograd.grad(out, (tq, tk, tv), tg, retain_graph=True)


def our_calls(q: Any, k: Any, v: Any, g: Any, backward: bool, threads: int) -> Callable[[], Any]:
    if not backward:
        return lambda: compute.attention(q, k, v, threads=threads)
    out, lse = compute.attention(q, k, v, return_lse=True, threads=threads)
    return lambda: compute.attention_backward(g, q, k, v, output=out, lse=lse, threads=threads, algorithm="bounded")


def cell(name: str, dtype: str, threads: int, n: int, d: int, reps: int) -> Cell:
    h = 8 if n <= 2048 else 2
    data = arrays(h, n, d, dtype)
    backward = name == "backward"
    flop = (10 if backward else 4) * h * n * n * d
    clock = time.process_time if threads == 1 else time.perf_counter
    ours, theirs = our_calls(*data, backward, threads), torch_calls(*data, backward)
    if theirs is not None:
        import torch

        torch.set_num_threads(threads)
    turns = max(3, min(reps, int(2e11 / flop)))
    times = alternate([ours] if theirs is None else [ours, theirs], turns, clock)
    out: Cell = {"pass": name, "dtype": dtype, "threads": threads, "n": n, "d": d, "h": h}
    out["gflops"] = round(flop / statistics.median(times[0]) / 1e9, 1)
    out["torch_gflops"] = round(flop / statistics.median(times[1]) / 1e9, 1) if theirs else None
    pairs = [b / a for a, b in zip(*times, strict=True)] if theirs else []
    out["ratio"] = round(statistics.median(pairs), 3) if theirs else None
    return out


def memory(n: int, d: int, dtype: str, backward: bool) -> int:
    """Most bytes that one call of one head holds at once beside its inputs and results."""
    q, k, v, g = arrays(1, n, d, dtype)
    call = our_calls(q, k, v, g, backward, 1)
    call()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    held = call()
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del held
    return peak - now if now > before else peak - before


def report(cells: list[Cell]) -> list[Cell]:
    rows = []
    for (name, dtype, threads), (bar, lowest) in BARS.items():
        seen = [
            c["ratio"] for c in cells if (c["pass"], c["dtype"], c["threads"]) == (name, dtype, threads) and c["ratio"]
        ]
        if not seen:
            continue
        mean, least = math.exp(statistics.fmean(map(math.log, seen))), min(seen)
        met = mean >= bar and (lowest is None or least >= lowest)
        rows.append(
            {"pass": name, "dtype": dtype, "threads": threads, "mean": round(mean, 3), "least": least, "met": met}
        )
        edge = "" if lowest is None else f", no cell below {lowest}"
        print(
            f"{name:8} {dtype} threads {threads}: geometric mean {mean:.3f}, least {least:.3f}; "
            f"bar {bar}{edge}: {'met' if met else 'NOT MET'}"
        )
    return rows


def long_run() -> Cell:
    """One head of n = 131,072 keys and queries in float32."""
    q, k, v, _ = arrays(1, 131_072, 64, "float32")
    tracemalloc.start()
    start = time.perf_counter()
    out = compute.attention(q, k, v, threads=1)
    seconds = time.perf_counter() - start
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    row = 70_001
    want = compute.attention(q[:, :, row : row + 1].astype("f8"), k.astype("f8"), v.astype("f8"), algorithm="shifted")
    error = float(abs(out[0, 0, row] - want[0, 0, 0]).max())
    print(f"n=131072 float32: {seconds:.1f} s, {(peak - now) / 1e6:.2f} MB beside inputs and output, error {error:.1e}")
    return {"n": 131_072, "seconds": round(seconds, 1), "megabytes": round((peak - now) / 1e6, 2), "error": error}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 512 and 2048 only, fewer repetitions")
    parser.add_argument("--long", action="store_true", help="add n = 131,072")
    parser.add_argument("--only", default="", metavar="TEXT", help='as "backward float64": leave out other passes')
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    held = {name: os.environ[name] for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ}
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"BLAS kernel {blas_kernel()}, numpy {np.__version__}{load}" + (f"; HELD BACK BY {held}" if held else ""))
    lengths = (512, 2048) if args.quick else (512, 1024, 2048, 4096, 8192)
    cells = []
    for name, dtype, threads in BARS:
        if args.only not in f"{name} {dtype} {threads}":
            continue
        for d in (64, 128):
            for n in lengths:
                c = cell(name, dtype, threads, n, d, 5 if args.quick else 15)
                cells.append(c)
                print(f"{name:8} {dtype} threads {threads} d={d:<4} n={n:<5} {c['gflops']:7.1f} GFLOP/s, "
                      f"torch {c['torch_gflops']}, ratio {c['ratio']}", flush=True)  # fmt: skip
    rows = report(cells)
    working = {
        f"{name} {dtype} n={n} d={d}": round(memory(n, d, dtype, name == "backward") / 1e6, 2)
        for name in ("forward", "backward")
        for dtype in ("float32", "float64")
        for n, d in ((2048, 64), (8192, 128))
    }
    for what, size in working.items():
        print(f"working memory, {what}: {size} MB (bar 8)")
    result = {"kernel": blas_kernel(), "cells": cells, "means": rows, "megabytes": working}
    if args.long:
        result["long"] = long_run()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
