"""How long the proofs take, in process time on one core.

    python benchmarks/derive.py [--repeat 5] [--all] [--json FILE]

Three tables: each gradient of attention end to end with softmax opened (reading the statement, differentiating,
normal form; then both checkers); every claim family, both checkers, cold; and the length of dQ's LaTeX. Exit code 1
when a claim isn't proved or a bar is missed: a gradient's normal form below 0.5 s (dX 0.9 s), both checkers within 2 s,
the families proved by normal form within 60 s, dQ within 80 characters.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from derive import binders
from derive.catalogue import claim, claims, family_names
from derive.families._attention import a, b
from derive.printing.matrix_form import matrix_latex
from derive.prover import first_checker, second_checker
from derive.rules import check_step

GRADIENTS = ("dv", "dq", "dk", "dwq", "dwk", "dwv", "dx")
BARS = {"first": 0.5, "first dx": 0.9, "both": 2.0, "all": 60.0, "characters": 80}


def seconds(work: Callable[[], Any], repeat: int) -> float:
    """Median process time of a call, with the names of binders forgotten before each."""
    found = []
    for _ in range(repeat):
        binders.forget()
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return statistics.median(found)


def gradients(repeat: int) -> list[dict[str, Any]]:
    rows = []
    for name in GRADIENTS:
        step = claim(f"gradients.{name}_opened").steps[0]
        assert first_checker(step.lhs, step.rhs, step.assumptions).zero, name
        assert second_checker(step.lhs, step.rhs, step.assumptions).agrees, name
        first = seconds(lambda s=step: first_checker(s.lhs, s.rhs, s.assumptions), repeat)
        second = seconds(lambda s=step: second_checker(s.lhs, s.rhs, s.assumptions), repeat)
        rows.append({"gradient": name, "first_s": first, "second_s": second, "both_s": first + second})
    return rows


def families(every: bool) -> list[dict[str, Any]]:
    """The claims' steps, each checked once, of families that rest on the normal form (or of every family)."""
    rows = []
    for name in family_names():
        binders.forget()
        start = time.process_time()
        table = claims(name)
        built = time.process_time()
        if not every and not any(s.rule == "normal-form" for one in table for s in one.steps):
            continue
        steps = [step for one in table for step in one.steps]
        verdicts = [check_step(step) for step in steps]
        exact = [v for v, step in zip(verdicts, steps, strict=True) if step.rule == "normal-form"]
        rows.append(
            {
                "family": name,
                "claims": len(table),
                "steps": len(verdicts),
                "proved": sum(v.is_proved for v in verdicts),
                "by_normal_form": len(exact),
                "not_shown": sum(not v.is_proved for v in exact),
                "build_s": built - start,
                "check_s": time.process_time() - built,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="calls whose median is taken")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON too")
    parser.add_argument("--all", action="store_true", help="check the families of moments and of the oracle too")
    options = parser.parse_args()
    by_family = families(options.all)  # first, so that it is cold
    by_gradient = gradients(options.repeat)
    dq = matrix_latex(claim("gradients.dq").rhs, a, b) or ""
    missed = []

    print(f"{'gradient':10} {'normal form':>12} {'modular':>9} {'both':>7}   seconds")
    for row in by_gradient:
        print(f"{row['gradient']:10} {row['first_s']:12.3f} {row['second_s']:9.3f} {row['both_s']:7.3f}")
        bar = BARS["first dx"] if row["gradient"] == "dx" else BARS["first"]
        missed += [f"{row['gradient']}: normal form {row['first_s']:.2f} s"] if row["first_s"] >= bar else []
        missed += [f"{row['gradient']}: both {row['both_s']:.2f} s"] if row["both_s"] > BARS["both"] else []

    print(f"\n{'family':14} {'claims':>6} {'steps':>6} {'proved':>7} {'build':>7} {'check':>7}   seconds")
    for row in by_family:
        print(
            f"{row['family']:14} {row['claims']:6} {row['steps']:6} {row['proved']:7} "
            f"{row['build_s']:7.2f} {row['check_s']:7.2f}"
        )
    exact = [row for row in by_family if row["by_normal_form"]]
    total = sum(row["build_s"] + row["check_s"] for row in exact)
    print(f"families that rest on the normal form, cold: {total:.1f} s")
    missed += [f"{row['family']}: {row['not_shown']} not proved" for row in exact if row["not_shown"]]
    missed += [f"families: {total:.1f} s"] if total >= BARS["all"] else []

    print(f"\ndQ in LaTeX: {len(dq)} characters   {dq}")
    missed += ["dQ's LaTeX is too long"] if not 0 < len(dq) <= BARS["characters"] else []
    for text in missed:
        print(f"bar missed: {text}")
    if options.json:
        document = {"gradients": by_gradient, "families": by_family, "total_s": total, "dq_latex": dq, "missed": missed}
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
