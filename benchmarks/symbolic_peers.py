"""How long tensorgrad takes for the gradients that benchmarks/derive.py proves, in process time on one core.

    pip install tensorgrad            # in an environment of its own: it pulls PyTorch
    python benchmarks/symbolic_peers.py [--repeat 5]

Attention's loss Σ G·softmax(QKᵀ)V is differentiated by Q, K, V, and with Q = XW^Q, K = XW^K, V = XW^V by X and the
weights, and simplified: a formula without a proof. Compare with the columns "first" (statement, derivative, normal form
compared with the claimed formula) and "both" (both checkers) of derive.py. Medians; nothing is judged.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def losses() -> dict[str, tuple[Any, Any]]:
    """Name of a gradient: (loss, variable)."""
    from sympy import symbols
    from tensorgrad import Variable
    from tensorgrad.functions import softmax
    from tensorgrad.functions import sum as total

    n, m, d, e, width = symbols("n m d e D")
    q, k, v = Variable("Q", n, d), Variable("K", m, d), Variable("V", m, e)
    g = Variable("G", n, e)
    loss = total(softmax(q @ k, ["m"]) @ v * g)
    found = {"dq": (loss, q), "dk": (loss, k), "dv": (loss, v)}
    x = Variable("X", n=n, D=width)
    weights = {name: Variable(name, width, out) for name, out in (("Wq", d), ("Wk", d), ("Wv", e))}
    keys, values = ((x @ weights[name]).rename(n="m") for name in ("Wk", "Wv"))
    own = total(softmax((x @ weights["Wq"]) @ keys, ["m"]) @ values * g)
    return found | {"dx": (own, x)} | {f"d{name.lower()}": (own, w) for name, w in weights.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each gradient (default 5)")
    repeat = max(1, parser.parse_args().repeat)
    try:
        print(f"tensorgrad {version('tensorgrad')}")
    except PackageNotFoundError:
        print("tensorgrad is not installed: pip install tensorgrad, in an environment of its own")
        return 1
    from tensorgrad import Derivative

    for name in losses():
        times = []
        for _ in range(repeat):
            loss, variable = losses()[name]
            start = time.process_time()
            Derivative(loss, variable).full_simplify()
            times.append(time.process_time() - start)
        print(f"{name:4} {statistics.median(times):6.3f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
