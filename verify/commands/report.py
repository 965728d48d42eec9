"""`attnproof report`: the main job, from proofs to pages.

Guarantees: exit code 0 when everything was proved or agrees (a missing model is said, and does not count as a
failure), 1 otherwise; running it with the default seed leaves committed pages as they are. Ctrl-C keeps what is
finished.
Does not: hold any of the work (see `verify.reporting.job`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify import errors

if TYPE_CHECKING:
    from verify.reporting.job import Section

# The order in which people read the parts, whatever order they end in.
_ORDER = ("derivations", "crosschecks", "variance", "saturation", "path", "weights")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the pages go (reports; with --quick they go nowhere unless given)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and draws: a look, not the committed pages")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything that is drawn (default 0)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes to use (default: the cores there are)")
    parser.add_argument("--json", metavar="FILE", help="write every result as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    from verify.jsonout import document, emit
    from verify.reporting.job import Job
    from verify.reporting.tasks import workers_here

    out = args.out if args.out is not None else (None if args.quick else Path("reports"))
    if out is not None and out.exists() and not out.is_dir():
        raise errors.UsageError(f"--out {out} is a file: expected a folder, or a name that is free")
    if args.workers is not None and args.workers < 1:
        raise errors.UsageError(f"--workers {args.workers}: expected at least 1")
    job = Job(out, args.seed, args.quick, args.workers or workers_here())
    done: list[Section] = []
    finished = False
    try:
        _run(job, done)
        finished = True
    finally:
        # Also when interrupted: what is finished is shown and kept.
        done.sort(key=lambda s: _ORDER.index(s.name))
        if args.json != "-":
            _show(done, finished)
        if args.json:
            body: dict[str, Any] = {"finished": finished, "seed": args.seed, "quick": args.quick}
            emit(document("report-1", {**body, "sections": [s.to_json() for s in done]}), args.json)
    return errors.DIFFERS if any(s.status == "failed" for s in done) else errors.AGREES


def _run(job: Any, done: list[Section]) -> None:
    from verify.console import stage

    total = len(job.tasks())
    count = 0
    with stage(f"{total} proofs, cross-checks and studies", total=total) as bar:

        def tell(label: str) -> None:
            nonlocal count
            count += 1
            bar.say(label)
            bar.advance()
            if not sys.stderr.isatty() and count % 25 == 0:
                print(f"  {count} of {total} done", file=sys.stderr, flush=True)

        for section in job.sections(tell):
            done.append(section)
            if not sys.stderr.isatty():
                print(f"  {section.title}: {section.status}", file=sys.stderr, flush=True)


def _show(done: list[Section], finished: bool) -> None:
    from verify.console import table

    rows = [(s.title, s.status, s.evidence, ", ".join(s.pages) or "–") for s in done]
    table("Verdicts" if finished else "Verdicts until the interruption", ("part", "verdict", "evidence", "see"), rows)
    pages = [p for s in done for p in s.pages if p.endswith(".md")]
    if pages:
        print(f"Where to look: {', '.join(pages)}")
