"""Figures of the moment engine: process time of single answers, and a larger simulation against the laws.

python benchmarks/moments.py [--json FILE] [--repeats N] [--simulate]

Each time is the median over repeats in one process; results are recomputed from scratch every time. Bars are those
of the project: E s⁸ of self-attention with X fixed < 0.5 s, E s⁴ with X random < 1.5 s, q·k to order 10 < 0.1 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sympy

# The folder of this script must not stand before the repository: it holds a script named as the package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from derive import moments
from derive.language import index, scalar, size
from derive.moments.diagrams import expect_by_diagrams
from derive.moments.layers import expect_by_layers
from derive.moments.model import model_of
from derive.moments.reader import read

d_k, d_model, n = size("d_k"), size("d_model"), size("n")
i, j = index("i"), index("j")


def attention(x: moments.Array, law_q: moments.Law, law_k: moments.Law) -> moments.Array:
    w_q, w_k = moments.matrix("W_Q", d_model, d_k, law=law_q), moments.matrix("W_K", d_model, d_k, law=law_k)
    return (x @ w_q) @ (x @ w_k).T


def normal(name: str) -> moments.Law:
    return moments.gaussian(0, scalar(name, positive=True) ** 2)


def by_route(quantity: moments.Quantity, route: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: route(read(quantity.expr), model_of(quantity.assumptions()))


def tasks() -> list[tuple[str, float | None, Callable[[], Any]]]:
    """(name, bar in seconds or None, work)."""
    fixed = attention(moments.fixed("X", n, d_model), normal("sigma_q"), normal("sigma_k"))
    gaussian_x = moments.matrix("X", n, d_model, law=normal("sigma_x"))
    random = attention(gaussian_x, normal("sigma_q"), normal("sigma_k"))
    shape = [moments.shaped(0, 1, 0, scalar(f"e_{name}")) for name in "qk"]
    loose = attention(moments.fixed("X", n, d_model), *shape)
    standard = moments.vector("q", d_k, law=moments.gaussian()) @ moments.vector("k", d_k, law=moments.gaussian())
    one_sided = moments.uniform(-1, 2)
    flat = moments.vector("q", d_k, law=one_sided) @ moments.vector("k", d_k, law=one_sided)
    free = [moments.vector(name, d_k, cumulants=sympy.symbols(f"{name}1:5")) for name in "qk"]
    return [
        ("E s^8, self-attention, X fixed, diagrams", 0.5, by_route(fixed[i, j] ** 8, expect_by_diagrams)),
        ("E s^8, self-attention, X fixed, cumulants", 0.5, by_route(fixed[i, j] ** 8, expect_by_layers)),
        ("E s_ij^4, X random, diagrams", 1.5, by_route(random[i, j] ** 4, expect_by_diagrams)),
        ("E s_ij^4, X random, cumulants", 1.5, by_route(random[i, j] ** 4, expect_by_layers)),
        ("E s_ii^4, X random, diagrams", 1.5, by_route(random[i, i] ** 4, expect_by_diagrams)),
        ("E s_ii^4, X random, cumulants", 1.5, by_route(random[i, i] ** 4, expect_by_layers)),
        ("E (q·k)^1 … E (q·k)^10, Gaussian", 0.1, lambda: [moments.expect(standard**p) for p in range(1, 11)]),
        ("E (q·k)^1 … E (q·k)^10, uniform on [−1, 2]", None, lambda: [moments.expect(flat**p) for p in range(1, 11)]),
        ("E (q·k)^4, four symbolic cumulants each", None, lambda: moments.expect((free[0] @ free[1]) ** 4)),
        ("E s^4, X fixed, weights of any kurtosis", None, lambda: moments.expect(loose[i, j] ** 4)),
    ]


def measured(repeats: int) -> list[dict[str, Any]]:
    rows = []
    for name, bar, work in tasks():
        times = []
        for _ in range(repeats):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        middle = statistics.median(times)
        rows.append({"task": name, "seconds": middle, "bar": bar, "met": None if bar is None else middle < bar})
    return rows


def simulated() -> list[dict[str, Any]]:
    """Every moment to order 4 of self-attention scores against batch means of 200 × 20,000 draws; z in units of SE."""
    import numpy as np

    rng = np.random.default_rng(20260102)
    rows = []
    for d, m in ((2, 3), (4, 6)):
        sums = {("diagonal", p): [] for p in range(1, 5)} | {("off", p): [] for p in range(1, 5)}
        for _ in range(200):
            x, w, v = (rng.standard_normal((20_000, *shape)) for shape in ((2, m), (m, d), (m, d)))
            scores = (x @ w) @ np.swapaxes(x @ v, -1, -2)
            for p in range(1, 5):
                sums["diagonal", p].append((scores[:, [0, 1], [0, 1]] ** p).mean())
                sums["off", p].append((scores[:, [0, 1], [1, 0]] ** p).mean())
        law = attention(moments.matrix("X", n, d_model, law=moments.gaussian()), moments.gaussian(), moments.gaussian())
        for (kind, p), means in sums.items():
            quantity = law[i, i] if kind == "diagonal" else law[i, j]
            exact = float(moments.expect(quantity**p).xreplace({d_k: sympy.Integer(d), d_model: sympy.Integer(m)}))
            error = statistics.stdev(means) / len(means) ** 0.5
            z = (statistics.mean(means) - exact) / error
            rows.append({"entry": kind, "order": p, "d_k": d, "d_model": m, "law": exact, "z": z})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--simulate", action="store_true", help="also run the larger simulation")
    args = parser.parse_args()
    report: dict[str, Any] = {"times": measured(args.repeats)}
    for row in report["times"]:
        bar = "" if row["bar"] is None else f"  (bar {row['bar']} s: {'met' if row['met'] else 'MISSED'})"
        print(f"{row['seconds'] * 1000:9.2f} ms  {row['task']}{bar}")
    if args.simulate:
        report["simulation"] = simulated()
        for row in report["simulation"]:
            print(f"z = {row['z']:+.2f}  E s^{row['order']} {row['entry']}, d_k {row['d_k']}, d_model {row['d_model']}")
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if all(row["met"] in (True, None) for row in report["times"]) else 1


if __name__ == "__main__":
    sys.exit(main())
