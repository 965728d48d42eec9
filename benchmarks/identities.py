"""How much of index calculus the prover proves, and that it proves nothing false.

    python benchmarks/identities.py --true 10000 --false 10000
    python benchmarks/identities.py --true 10000 --false 10000 --resume identities.json

Random identities made by 1 to 6 rewrites, and falsehoods made by one mutation that interval arithmetic confirmed
(tests/derive/identities.py). Prints the share proved in each rewrite class, and process time: about 11 minutes for both
ten thousands on one core. A terminal shows how far it is. With --resume, what was done is kept in that file every
hundred seeds, and a later call with the same file goes on from there. Exit code 1 on a falsehood that either checker
accepts, or a true identity that is refuted; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from derive import modular
from derive.errors import StatementError
from derive.prover import first_checker, prove
from derive.verdict import Kind
from tests.derive.identities import CLASSES, CONDITIONS, falsehood, identity

_BLOCK = 100


@dataclass
class Survey:
    """Counts by class, and every answer that is a fault or a gap, as (statement, reason)."""

    made: collections.Counter[str] = field(default_factory=collections.Counter)
    proved: collections.Counter[str] = field(default_factory=collections.Counter)
    gaps: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    seeds: int = 0

    def share(self, name: str) -> float:
        return self.proved[name] / self.made[name]

    def add(self, other: Survey) -> None:
        """Take in the answers for further seeds."""
        self.made.update(other.made)
        self.proved.update(other.proved)
        self.gaps += other.gaps
        self.faults += other.faults
        self.seconds += other.seconds
        self.seeds += other.seeds

    @classmethod
    def read(cls, data: dict[str, Any]) -> Survey:
        """A survey from its plain data."""
        pairs = {name: [(one, why) for one, why in data[name]] for name in ("gaps", "faults")}
        counts = {name: collections.Counter(data[name]) for name in ("made", "proved")}
        return cls(**counts, **pairs, seconds=list(data["seconds"]), seeds=int(data["seeds"]))


def truths(seeds: Iterable[int]) -> Survey:
    """Prove the true identities of these seeds; a refuted one, or a disagreement of the checkers, is a fault."""
    survey = Survey()
    for seed in seeds:
        one = identity(seed)
        survey.seeds += 1
        survey.made.update(set(one.classes))
        start = time.process_time()
        verdict = prove(one.lhs, one.rhs, CONDITIONS)
        survey.seconds.append(time.process_time() - start)
        if verdict.is_proved:
            survey.proved.update(set(one.classes))
        elif verdict.kind is Kind.REFUTED:
            survey.faults.append((str(one), str(verdict)))
        else:
            survey.gaps.append((str(one), str(verdict)))
    return survey


def falsehoods(seeds: Iterable[int]) -> Survey:
    """Offer falsehoods to each checker alone; each one accepted is a fault, though a proof needs both."""
    survey = Survey()
    for seed in seeds:
        one = falsehood(seed)
        name = str(one.mutation)
        survey.seeds += 1
        survey.made[name] += 1
        for judge, accepts in (
            ("the first checker", lambda q: first_checker(q.lhs, q.rhs, CONDITIONS).zero),
            ("the modular checker", lambda q: modular.check(q.lhs, q.rhs, CONDITIONS).agrees),
        ):
            try:
                if accepts(one):
                    survey.faults.append((str(one), f"accepted by {judge}"))
            except StatementError:
                pass  # refused as a statement that can't be read: an entry outside its array, say
    return survey


class Run:
    """Both surveys, made in blocks of seeds: shown as they grow, and kept in a file where one is named."""

    def __init__(self, first: int, keep: Path | None) -> None:
        self.first, self.keep = first, keep
        self.true, self.false, self.spent = Survey(), Survey(), 0.0
        if keep is not None and keep.exists():
            data = json.loads(keep.read_text(encoding="utf-8"))
            if data["first"] != first:
                raise SystemExit(f"{keep} began at seed {data['first']}: give --first {data['first']}, or another file")
            self.true, self.false = Survey.read(data["true"]), Survey.read(data["false"])
            self.spent = float(data["spent"])

    def grow(self, survey: Survey, name: str, more: Callable[[Iterable[int]], Survey], wanted: int) -> None:
        """Answer seeds until the survey holds as many as wanted."""
        while survey.seeds < wanted:
            begin = self.first + survey.seeds
            start = time.process_time()
            survey.add(more(range(begin, min(begin + _BLOCK, self.first + wanted))))
            self.spent += time.process_time() - start
            if sys.stderr.isatty():
                print(f"\r{name} {survey.seeds} of {wanted}, {self.spent:.0f} s ", end="", file=sys.stderr, flush=True)
            if self.keep is not None:
                self._write(self.keep)
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def _write(self, keep: Path) -> None:
        """The whole file or none of it: an interruption leaves what was there before."""
        data = {"first": self.first, "spent": self.spent, "true": vars(self.true), "false": vars(self.false)}
        beside = keep.with_name(keep.name + ".part")
        beside.write_text(json.dumps(data), encoding="utf-8")
        beside.replace(keep)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--true", type=int, default=10000, help="number of true identities")
    parser.add_argument("--false", type=int, default=10000, help="number of falsehoods")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--gaps", type=int, default=0, help="how many unproved identities to print")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep what was done there, and go on from it")
    args = parser.parse_args()
    run = Run(args.first, args.resume)
    code = 0
    try:
        run.grow(run.true, "identities", truths, args.true)
        run.grow(run.false, "falsehoods", falsehoods, args.false)
    except KeyboardInterrupt:
        code = 130
    true, false = run.true, run.false
    print(f"{'class':<14}{'made':>8}{'proved':>8}{'share':>9}")
    for name in CLASSES:
        if true.made[name]:
            print(f"{name:<14}{true.made[name]:>8}{true.proved[name]:>8}{true.share(name):>9.2%}")
    print(f"{'all':<14}{true.seeds:>8}{true.seeds - len(true.gaps) - len(true.faults):>8}")
    print(f"falsehoods {false.seeds}:", ", ".join(f"{name} {count}" for name, count in false.made.most_common()))
    faults = true.faults + false.faults
    print(f"faults (false proofs, refuted truths): {len(faults)}")
    for one, why in [*faults, *true.gaps[: args.gaps]]:
        print(f"  {why}\n    {one}")
    if true.seconds:
        print(f"proving one identity: median {statistics.median(true.seconds):.3f} s, most {max(true.seconds):.3f} s")
    print(f"process time {run.spent:.0f} s")
    return code or (1 if faults else 0)


if __name__ == "__main__":
    raise SystemExit(main())
