"""The laws of saturation beside the exact oracle, and what has no exact oracle beside a simulation.

    python benchmarks/saturation_laws.py [--write] [--replicates 1.0] [--seed 20260101]

Prints a Markdown page; --write puts it into benchmarks/saturation_laws.md. Three parts: every law that states its error
(its worst error on its grid, by the oracle, no randomness); gradients at initialisation, exact laws against simulated
attention written out here with NumPy alone; medians, shares and sparsemax against simulation. Exit code 1 when a law
exceeds its stated error, or when a simulated value is more than 4.5 standard errors plus the stated order of the
approximation away.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import derive
from derive.oracle import expect
from derive.oracle_order import expected_maximum, gap_median, gap_tail
from derive.oracle_rules import law_error
from derive.row_laws import laws
from derive.verdict import Kind

OUT = Path(__file__).with_suffix(".md")
GRADIENTS = ("gradient_q", "gradient_k", "gradient_v", "gradient_scores")
WEIGHTS = ("gradient_w_q", "gradient_w_k", "gradient_w_v")
SETTINGS = [  # n, d_k, d_model (None: independent Q, K, V), replicates of 64 heads each
    (8, 16, None, 600),
    (64, 64, None, 40),
    (4, 4, 4, 1500),
    (8, 16, 16, 800),
    (16, 32, 8, 400),
    (64, 64, 16, 60),
    (64, 64, 64, 60),
    (64, 64, 256, 40),
]
LIMIT = 4.5  # standard errors: about 100 comparisons, so a family-wise false alarm below 1 in 1000


class Page:
    """Markdown to standard output and, in the end, to the file."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self.failures: list[str] = []

    def line(self, text: str = "") -> None:
        print(text, flush=True)
        print(text, file=self.text)

    def table(self, *heads: str) -> None:
        self.line("| " + " | ".join(heads) + " |")
        self.line("|" + "---|" * len(heads))

    def row(self, *cells: object) -> None:
        self.line("| " + " | ".join(str(c) for c in cells) + " |")


def exact_part(page: Page) -> None:
    page.line("## Laws beside the exact oracle\n")
    page.line(
        "Relative errors law/exact − 1 on the law's own grid. “Share” is the largest ratio of error found to error "
        "stated, point by point: 1 is a statement with nothing to spare. No randomness; the oracle's own error is "
        "about 1e-13.\n"
    )
    page.table("law", "verdict", "right side", "stated relative error", "points", "worst error", "share")
    for law in laws():
        errors = [law_error(law.exact, law.law, law.error, point) for point in law.grid]
        worst = max(errors, key=lambda e: abs(e[0]))[0]
        share = max(abs(found) / allowed for found, allowed in errors)
        verdict = law.claim.prove()
        page.row(
            f"`{law.claim.id}`",
            verdict.kind.title,
            f"`{law.law}`",
            f"`{law.error}`",
            len(law.grid),
            f"{worst:+.2e}",
            f"{share:.2f}",
        )
        if share > 1 + 1e-6 or verdict.kind < Kind.NUMERIC:
            page.failures.append(law.claim.id)
    exact = [
        one
        for family in ("saturation", "alternatives", "depth")
        for one in derive.claims(family)
        if "error" not in one.steps[-1].data
    ]
    proved = [one for one in exact if one.prove().is_proved]
    page.line(
        f"\nExact statements (identities, bounds, limits with no stated error): {len(proved)} of {len(exact)} proved.\n"
    )
    page.failures += [one.id for one in exact if one not in proved]


def attention(rng: np.random.Generator, n: int, d: int, width: int | None, scale: float, heads: int, d_v: int) -> Any:
    """Mean squared gradients of one batch of heads at random inputs, per row (or key) and per unit of d_v."""

    def normal(*shape: int) -> Any:
        return rng.standard_normal((heads, *shape))

    x = None
    if width is None:
        q, k, v = normal(n, d), normal(n, d), normal(n, d_v)
    else:
        x = normal(n, width)
        q, k, v = (x @ normal(width, size) / math.sqrt(width) for size in (d, d, d_v))
    g = normal(n, d_v)
    s = scale * q @ k.swapaxes(1, 2)
    a = np.exp(s - s.max(axis=2, keepdims=True))
    a /= a.sum(axis=2, keepdims=True)
    da = g @ v.swapaxes(1, 2)
    ds = a * (da - (a * da).sum(axis=2, keepdims=True))
    dq, dk, dv = scale * ds @ k, scale * ds.swapaxes(1, 2) @ q, a.swapaxes(1, 2) @ g
    parts = [dq, dk, dv, ds]
    if x is not None:
        parts += [x.swapaxes(1, 2) @ part for part in (dq, dk, dv)]
    return np.array([np.mean((part**2).sum(axis=(1, 2))) / (n * d_v) for part in parts])


def gradient_part(page: Page, rng: np.random.Generator, factor: float) -> None:
    page.line("## Gradients at initialisation beside a simulation\n")
    page.line(
        "Mean squared norms per row (or key) and per unit of d_v, upstream gradient N(0, 1); those of the weights are "
        "divided by n d_v. For independent Q, K, V the law is exact; for self-attention from one X the own key's "
        "effect is included to order 1/(n d_model), and “stated error” is what the next order leaves. “Without own "
        "key” is the law for keys of other tokens. ± is one standard error over replicates of 64 heads.\n"
    )
    page.table("n, d_k, d_model", "scale", "gradient of", "law", "simulated", "z", "law/simulated − 1", "stated error",
               "without own key")  # fmt: skip
    scores: list[float] = []
    for n, d, width, replicates in SETTINGS:
        for label, scale in (("1/√d_k", d**-0.5), ("1", 1.0)):
            runs = np.array(
                [attention(rng, n, d, width, scale, 64, 8) for _ in range(max(8, int(factor * replicates)))]
            )
            mean, se = runs.mean(axis=0), runs.std(axis=0, ddof=1) / math.sqrt(len(runs))
            names = GRADIENTS if width is None else GRADIENTS + WEIGHTS
            for k, name in enumerate(names):
                known = expect(name, n, d_k=d, scale=scale, d_model=width)
                law, left = float(known.value), float(known.error)
                others = law if width is None else float(
                    expect(name, n, d_k=d, scale=scale, d_model=width, own_key=False).value
                )  # fmt: skip
                z = (mean[k] - law) / se[k]
                page.row(
                    f"{n}, {d}, {width or '∞'}",
                    label,
                    name.removeprefix("gradient_"),
                    f"{law:.5g}",
                    f"{mean[k]:.5g} ± {se[k]:.1g}",
                    f"{z:+.1f}",
                    f"{law / mean[k] - 1:+.4f}",
                    "exact" if width is None else f"{left / law:.1e}",
                    "" if width is None else f"{others / mean[k] - 1:+.4f}",
                )
                if abs(mean[k] - law) > LIMIT * se[k] + left:
                    page.failures.append(f"{name} at {n}, {d}, {width}, {label}")
                if left < se[k] / 4:
                    scores.append(float(z))
    page.line(
        f"\nWhere the stated error is below a quarter of the noise: {len(scores)} comparisons, "
        f"largest |z| {max(map(abs, scores)):.1f}, mean square of z {np.mean(np.square(scores)):.2f}.\n"
    )


def norms(rng: np.random.Generator, n: int, sigma: float, rows: int) -> np.ndarray:
    """‖J‖_F of rows of n scores N(0, σ²), from gaps to the largest, so that tiny values keep their accuracy."""
    out = []
    for _ in range(-(-rows // 5000)):
        x = -np.sort(-sigma * rng.standard_normal((5000, n)), axis=1)
        small = np.exp(x[:, 1:] - x[:, :1])
        top = 1 / (1 + small.sum(axis=1))
        rest = small * top[:, None]
        square = rest**2
        off = 2 * top**2 * square.sum(axis=1) + np.maximum(square.sum(axis=1) ** 2 - (square**2).sum(axis=1), 0)
        diagonal = (top * rest.sum(axis=1)) ** 2 + (square * (1 - rest) ** 2).sum(axis=1)
        out.append(np.sqrt(off + diagonal))
    return np.concatenate(out)


def share_row(page: Page, name: str, setting: str, law: float, found: float, count: int) -> None:
    se = math.sqrt(max(found * (1 - found), 1e-12) / count)
    page.row(name, setting, f"{law:.4g}", f"{found:.4g} ± {se:.1g}", f"{law / found - 1:+.3f}")


def tail_part(page: Page, rng: np.random.Generator, factor: float) -> None:
    rows = max(20000, int(factor * 200000))
    page.line("## Medians, shares of saturated rows, sparsemax, beside a simulation\n")
    page.line(
        "Median: 1/(1 + cosh(σ gap_median)), exact at n = 2, else its leading form; proved are its bounds and its "
        "exponential rate. Share: P(‖J‖_F ≥ ε) by mu_n arcosh(1/ε − 1)/σ, a limit. Sparsemax: exact.\n"
    )
    page.table("quantity", "setting", "law", "simulated", "law/simulated − 1")
    for n, sigma in ((2, 8.0), (2, 32.0), (8, 8.0), (8, 32.0), (64, 8.0), (64, 32.0), (512, 32.0)):
        found = norms(rng, n, sigma, rows // (1 if n <= 64 else 8))
        median = float(np.median(found))
        law = 1 / (1 + math.cosh(sigma * gap_median(n)))
        half = (4.0 if n == 2 else 2.0) * math.sqrt(found.size) / 2
        ordered = np.sort(found)
        low, high = ordered[int(found.size / 2 - half)], ordered[int(found.size / 2 + half)]
        page.row("median ‖J‖_F", f"n = {n}, σ = {sigma:g}", f"{law:.4g}", f"{median:.4g} [{low:.3g}, {high:.3g}]",
                 f"{law / median - 1:+.3f}")  # fmt: skip
        bounds = -sigma * gap_median(n) - 2 * math.log(n), -sigma * gap_median(n) + math.log(2 * (n - 1))
        # Bounds and law are held against the interval for the median, ± 2 standard errors of its rank (n = 2: ± 4).
        if math.log(high) < bounds[0] or math.log(low) > bounds[1] or (n == 2 and not low <= law <= high):
            page.failures.append(f"median at n = {n}, σ = {sigma}")
        for epsilon in (1e-2, 1e-6):
            exact = expected_maximum(n) * math.acosh(1 / epsilon - 1) / sigma
            if exact < 0.5:
                share_row(page, f"P(‖J‖_F ≥ {epsilon:g})", f"n = {n}, σ = {sigma:g}", exact,
                          float(np.mean(found >= epsilon)), found.size)  # fmt: skip
    for n, sigma in ((8, 1.0), (64, 4.0), (512, 16.0)):
        x = np.concatenate([-np.sort(-rng.standard_normal((5000, n)), axis=1)[:, :2] for _ in range(rows // 20000)])
        alone = float(np.mean(1 + 2 * sigma * x[:, 1] <= sigma * (x[:, 0] + x[:, 1])))
        law = gap_tail(1 / sigma, n)
        share_row(page, "P(sparsemax keeps one key)", f"n = {n}, σ = {sigma:g}", law, alone, len(x))
        if abs(alone - law) > LIMIT * math.sqrt(law * (1 - law) / len(x)):
            page.failures.append(f"sparsemax at n = {n}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write benchmarks/saturation_laws.md")
    parser.add_argument("--replicates", type=float, default=1.0, help="factor on the number of replicates")
    parser.add_argument("--seed", type=int, default=20260101)
    arguments = parser.parse_args()
    page = Page()
    page.line("# Laws of saturation: exact, law, and simulation\n")
    page.line(
        f"Made by `python benchmarks/saturation_laws.py --write --replicates {arguments.replicates:g}` "
        f"(seed {arguments.seed}, NumPy {np.__version__}). "
        "Notation: `derive/row_nodes.py`; v = σ² is the variance of a row's scores.\n"
    )
    parts: list[Callable[[], None]] = [
        lambda: exact_part(page),
        lambda: gradient_part(page, np.random.default_rng([arguments.seed, 1]), arguments.replicates),
        lambda: tail_part(page, np.random.default_rng([arguments.seed, 2]), arguments.replicates),
    ]
    for part in parts:
        part()
    page.line(f"\nFailures: {', '.join(page.failures) if page.failures else 'none'}.")
    if arguments.write:
        OUT.write_text(page.text.getvalue(), encoding="utf-8")
    return 1 if page.failures else 0


if __name__ == "__main__":
    sys.exit(main())
