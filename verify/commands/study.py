"""`attnproof study variance | saturation | path | weights`: run an experiment against its law.

Guarantees: exit code 0 when the study agrees, 1 when it differs or could not decide; the picture and the JSON are
written whole. Does not: hold any statistics (see `verify.studies`).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify.errors import UsageError
from verify.studies.run import STUDIES, study

if TYPE_CHECKING:
    from verify.studies.study import StudyResult

LAWS = ("normal", "uniform", "rademacher", "exponential", "student9")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    studies = parser.add_subparsers(dest="study", metavar="STUDY", required=True, title="studies")
    for name, text in STUDIES.items():
        sub = studies.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.add_argument("--seed", type=int, default=0, help="seed of the random streams (default 0)")
        sub.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")
        sub.add_argument("--plot", metavar="FILE.svg", help="draw the result as SVG")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        _ADD[name](sub)


def _add_variance(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--d-k", default="4:4096", metavar="A:B", help="powers of two from A to B, or a list 4,10,64")
    sub.add_argument("--law", default="normal", choices=LAWS, help="law of the components (mean 0, variance 1)")
    for name in ("q", "k"):
        sub.add_argument(f"--{name}-mean", type=float, default=0.0, help=f"mean of the components of {name}")
        sub.add_argument(f"--{name}-sd", type=float, default=1.0, help=f"standard deviation of those of {name}")
    sub.add_argument("--precision", type=float, default=0.0015, help="relative standard error aimed at (0.0015)")


def _add_weights(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--model", type=Path, metavar="FILE", help="a safetensors file (BERT, GPT-2 or Llama naming)")
    sub.add_argument("--heads", type=int, help="number of heads, where no config.json lies beside the file")
    sub.add_argument("--kv-heads", type=int, help="number of key-value heads, likewise")


def _add_saturation(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--d-k", default="4,16,64,256,1024", metavar="A:B", help="powers of two from A to B, or a list")
    sub.add_argument("--n", type=int, default=64, help="keys a row (64)")
    sub.add_argument("--rows", type=int, default=24_000, help="independent rows at each point (24000)")


def _add_path(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--lengths", default="1,4,16,64,256", metavar="A:B", help="distances: powers of two, or a list")


_ADD = {"variance": _add_variance, "saturation": _add_saturation, "path": _add_path, "weights": _add_weights}


def run(args: argparse.Namespace) -> int:
    from verify.console import stage
    from verify.jsonout import document, emit, write_whole

    if args.plot and not args.plot.endswith(".svg"):
        raise UsageError(f"--plot {args.plot}: expected a name that ends in .svg")
    with stage(f"study {args.study}") as bar:
        result = study(args.study, **_options(args), seed=args.seed, progress=bar.say)
    if args.json != "-":
        show(result)
    if args.json:
        emit(document("study-1", result.to_json()), args.json)
    if args.plot:
        from verify.reporting.figures import figure

        write_whole(Path(args.plot), figure(result))
    return result.exit_code


def _options(args: argparse.Namespace) -> dict[str, Any]:
    if args.study == "weights":
        return {"model": args.model, "heads": args.heads, "kv_heads": args.kv_heads}
    if args.study == "path":
        return {"lengths": sizes(args.lengths, "--lengths")}
    if args.study == "saturation":
        return {"d_k": sizes(args.d_k), "n": args.n, "rows": args.rows}
    if not 1e-5 <= args.precision <= 0.5:
        raise UsageError(f"--precision {args.precision}: expected a number from 1e-5 to 0.5")
    chosen = {name: getattr(args, name) for name in ("q_mean", "k_mean", "q_sd", "k_sd", "precision")}
    return {"d_k": sizes(args.d_k), "components": args.law, **chosen}


def sizes(text: str, option: str = "--d-k") -> tuple[int, ...]:
    """ "4:4096" → powers of two times 4 up to 4096; "3,10" → those. Raises UsageError for anything else."""
    most = 1 << 16
    if found := re.fullmatch(r"(\d+):(\d+)", text):
        low, high = int(found[1]), int(found[2])
        values = []
        while 1 <= low <= high:
            values.append(low)
            low *= 2
    elif re.fullmatch(r"\d+(,\d+)*", text):
        values = [int(part) for part in text.split(",")]
    else:
        values = []
    if not values or min(values) < 1 or max(values) > most:
        raise UsageError(f"{option} {text}: expected A:B with 1 <= A <= B, or a list as 4,10,64; at most {most}")
    return tuple(values)


def show(result: StudyResult) -> None:
    """Print a result on standard output."""
    from verify.console import table
    from verify.reporting.numbers import cell

    for one in result.tables:
        table(one.title, one.header, [[cell(c) for c in row] for row in one.rows])
    rows = [(t.statement, _WORDS[t.passed], t.detail) for t in result.tests]
    table("Tests", ("statement", "verdict", "evidence"), rows)
    for note in result.notes:
        print(note)
    laws = f" (law: {', '.join(result.claims)})" if result.claims else ""
    print(f"{result.title}: {result.outcome}{laws}")


_WORDS = {True: "holds", False: "fails", None: "undecided"}
