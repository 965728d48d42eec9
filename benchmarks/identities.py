"""How much of index calculus the prover proves, and that it proves nothing false.

    python benchmarks/identities.py --true 10000 --false 10000

Random identities made by 1 to 6 rewrites, and falsehoods made by one mutation that interval arithmetic confirmed
(tests/derive/identities.py). Prints the share proved in each rewrite class, and process time. Exit code 1 on a
falsehood that either checker accepts, or a true identity that is refuted.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from derive import modular
from derive.errors import StatementError
from derive.prover import first_checker, prove
from derive.verdict import Kind
from tests.derive.identities import CLASSES, CONDITIONS, Identity, falsehood, identity


@dataclass
class Survey:
    """Counts by class, and every answer that is a fault or a gap."""

    made: collections.Counter[str] = field(default_factory=collections.Counter)
    proved: collections.Counter[str] = field(default_factory=collections.Counter)
    gaps: list[tuple[Identity, str]] = field(default_factory=list)
    faults: list[tuple[Identity, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def share(self, name: str) -> float:
        return self.proved[name] / self.made[name]


def truths(seeds: Iterable[int]) -> Survey:
    """Prove the true identities of these seeds; a refuted one, or a disagreement of the checkers, is a fault."""
    survey = Survey()
    for seed in seeds:
        one = identity(seed)
        survey.made.update(set(one.classes))
        start = time.process_time()
        verdict = prove(one.lhs, one.rhs, CONDITIONS)
        survey.seconds.append(time.process_time() - start)
        if verdict.is_proved:
            survey.proved.update(set(one.classes))
        elif verdict.kind is Kind.REFUTED:
            survey.faults.append((one, str(verdict)))
        else:
            survey.gaps.append((one, str(verdict)))
    return survey


def falsehoods(seeds: Iterable[int]) -> Survey:
    """Offer falsehoods to each checker alone; each one accepted is a fault, though a proof needs both."""
    survey = Survey()
    for seed in seeds:
        one = falsehood(seed)
        name = str(one.mutation)
        survey.made[name] += 1
        for judge, accepts in (
            ("the first checker", lambda q: first_checker(q.lhs, q.rhs, CONDITIONS).zero),
            ("the modular checker", lambda q: modular.check(q.lhs, q.rhs, CONDITIONS).agrees),
        ):
            try:
                if accepts(one):
                    survey.faults.append((one, f"accepted by {judge}"))
            except StatementError:
                pass  # refused as a statement that can't be read: an entry outside its array, say
    return survey


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--true", type=int, default=10000, help="number of true identities")
    parser.add_argument("--false", type=int, default=10000, help="number of falsehoods")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--gaps", type=int, default=0, help="how many unproved identities to print")
    args = parser.parse_args()
    start = time.process_time()
    true = truths(range(args.first, args.first + args.true))
    false = falsehoods(range(args.first, args.first + args.false))
    print(f"{'class':<14}{'made':>8}{'proved':>8}{'share':>9}")
    for name in CLASSES:
        if true.made[name]:
            print(f"{name:<14}{true.made[name]:>8}{true.proved[name]:>8}{true.share(name):>9.2%}")
    print(f"{'all':<14}{args.true:>8}{args.true - len(true.gaps) - len(true.faults):>8}")
    print("falsehoods:", ", ".join(f"{name} {count}" for name, count in false.made.most_common()))
    faults = true.faults + false.faults
    print(f"faults (false proofs, refuted truths): {len(faults)}")
    for one, why in [*faults, *true.gaps[: args.gaps]]:
        print(f"  {why}\n    {one}")
    if true.seconds:
        print(f"proving one identity: median {statistics.median(true.seconds):.3f} s, most {max(true.seconds):.3f} s")
    print(f"process time {time.process_time() - start:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
