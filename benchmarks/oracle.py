"""Milliseconds a point of the exact oracle, and the errors it states: process time, medians, caches emptied.

    python benchmarks/oracle.py

The bars: 15 ms a point, 60 ms for the maximum.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from derive import oracle, oracle_gaussian, oracle_mixture, oracle_points
from derive.oracle import expect

ROWS = [(n, s) for n in (2, 64, 512, 1e6) for s in (0.1, 1.0, 3.0, 8.0, 30.0)]
HEADS = [(n, d, scale) for n in (8, 64, 512) for d in (1, 2, 16, 64, 1024) for scale in (d**-0.5, 1.0)]
SHARED = [(n, d, w, c) for n in (8, 64, 512) for d, w in ((16, 64), (64, 64), (64, 512)) for c in (d**-0.5, 1.0)]
MANY = 1e6


def empty_caches() -> None:
    oracle_points._cached_table.cache_clear()
    oracle_points._maximum.cache_clear()
    oracle_mixture.chi.cache_clear()
    oracle_gaussian._kernel.cache_clear()


def measure(call: Callable[[], Any], repeats: int = 5) -> float:
    """Median process time of one call in milliseconds, each from empty caches."""
    taken = []
    for _ in range(repeats):
        empty_caches()
        start = time.process_time()
        call()
        taken.append(1e3 * (time.process_time() - start))
    return statistics.median(taken)


def line(name: str, calls: Iterable[Callable[[], oracle.Expectation]], bar: float) -> None:
    calls = list(calls)
    times = [measure(call) for call in calls]
    errors = [float(r.error / abs(r.value)) for r in (call() for call in calls)]
    met = "met" if max(times) <= bar else f"missed at {sum(t > bar for t in times)} of {len(times)} points"
    print(
        f"{name:52s} {statistics.median(times):7.2f} {max(times):8.2f}   {max(errors):.1e}   bar {bar:g} ms: {met}",
        flush=True,
    )


def main() -> None:
    print(f"{'one point, value and error':52s} {'median':>7s} {'slowest':>8s}   {'largest relative error stated'}")
    for name in ("p2", "jacobian", "entropy", "log_z", "jacobian_direction"):
        line(f"{name} at (n, sigma)", [lambda n=n, s=s, name=name: expect(name, n, sigma=s) for n, s in ROWS], 15)
    line("maximum at (n, sigma)", [lambda n=n, s=s: expect("maximum", n, sigma=s) for n, s in ROWS], 60)
    for name in ("p2", "jacobian", "gradient_q"):
        calls = [lambda n=n, d=d, c=c, name=name: expect(name, n, d_k=d, scale=c) for n, d, c in HEADS]
        line(f"{name} at (n, d_k, scale)", calls, 15)
    calls = [lambda d=d, c=c: expect("gradient_q", MANY, d_k=d, scale=c) for n, d, c in HEADS if n == 8]
    line("gradient_q at n = 1e6, (d_k, scale)", calls, 15)
    for name in ("gradient_q", "gradient_k", "gradient_w_q"):
        calls = [
            lambda n=n, d=d, w=w, c=c, name=name: expect(name, n, d_k=d, d_model=w, scale=c) for n, d, w, c in SHARED
        ]
        line(f"{name} at (n, d_k, d_model, scale)", calls, 15)
    calls = [
        lambda d=d, w=w, c=c: expect("gradient_q", MANY, d_k=d, d_model=w, scale=c) for n, d, w, c in SHARED if n == 8
    ]
    line("gradient_q at n = 1e6, (d_k, d_model, scale)", calls, 15)
    pairs = [(n, s, r) for n in (64, 512) for s in (1.0, 4.0) for r in (0.3, 0.9)]
    calls = [lambda n=n, s=s, r=r: expect("overlap", n, sigma=s, correlation=r) for n, s, r in pairs]
    line("overlap at (n, sigma, correlation)", calls, 60)


if __name__ == "__main__":
    main()
