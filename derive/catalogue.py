"""The claim, and the catalogue of all claims.

A claim is one statement about attention, with its conditions, its steps and its source.

Guarantees: a claim's verdict is the weakest of its steps' and of its premises' verdicts; the steps must chain from
`lhs` to `rhs` by relations that compose to the claim's, and rest on nothing that the claim doesn't state. Side
conditions are stored here by the constructor; no checker reads them off an expression.
Does not: prove anything itself (see `derive.rules`).
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from derive.assumptions import Assumption, AtLeast, Defined, Distinct, InRange, Ordered
from derive.errors import DeriveError, UnknownClaim
from derive.rules import check_step
from derive.source import Source
from derive.step import RELATIONS, Relation, Step
from derive.verdict import Verdict, weakest


@dataclass(frozen=True)
class Claim:
    """One statement `lhs relation rhs`.

    id: file.name, as "variance.scores". title: {"en": ..., "ja": ...}. assumptions: side conditions, as data
    (`derive.assumptions`) or in words, printed with the claim. steps: a chain from lhs to rhs.
    observable: name of the `compute` observable that measures it, or None. symbols: {name: meaning with shape}.
    """

    id: str
    title: Mapping[str, str]
    lhs: Any
    rhs: Any
    source: Source
    steps: tuple[Step, ...]
    relation: Relation = "="
    assumptions: tuple[Assumption, ...] = ()
    observable: str | None = None
    symbols: Mapping[str, str] = field(default_factory=dict)
    note: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.steps:
            raise DeriveError(f"claim {self.id} has no steps: nothing would be checked")
        missing = {"en", "ja"} - set(self.title)
        if missing:
            raise DeriveError(f"claim {self.id} lacks a title in {', '.join(sorted(missing))}")
        if self.relation not in RELATIONS:
            raise DeriveError(f"claim {self.id} has relation {self.relation!r}: expected one of {', '.join(RELATIONS)}")

    def prove(self) -> Verdict:
        """Check every step and every premise; the verdict is the weakest of them. Results are kept per process."""
        return _prove(self.id) if _is_registered(self) else _judge(self)

    def step_verdicts(self) -> tuple[Verdict, ...]:
        """One verdict a step, in order (premises are not included)."""
        return tuple(check_step(step) for step in self.steps)


def _judge(claim: Claim) -> Verdict:
    gap = check_chain(claim) or check_conditions(claim)
    if gap is not None:
        return gap
    verdicts = [*claim.step_verdicts()]
    premises = sorted({p for step in claim.steps for p in step.premises})
    verdicts += [_prove(p) for p in premises]
    return weakest(verdicts)


def check_chain(claim: Claim) -> Verdict | None:
    """None when the steps lead from the claim's lhs to its rhs without a gap; else why they don't, as Unknown.

    Equality here is structural: what one step ends with, the next must begin with.
    """
    first, last = claim.steps[0], claim.steps[-1]
    if first.lhs != claim.lhs or last.rhs != claim.rhs:
        return Verdict.unknown("the steps do not start at the claim's left side and end at its right side")
    for a, b in zip(claim.steps, claim.steps[1:], strict=False):
        if a.rhs != b.lhs:
            return Verdict.unknown("a step does not begin where the one before it ended")
    if not composes([s.relation for s in claim.steps], claim.relation):
        return Verdict.unknown(f"the steps' relations do not compose to {claim.relation!r}")
    return None


def composes(relations: Sequence[str], wanted: str) -> bool:
    """Whether a chain of steps with these relations shows the relation wanted between its ends.

    "=": all are "=". "<=": all are "=", "<=" or "<". "<": the same, with one "<". "limit" and "rank": one step is that,
    all others are "=" (a limit of a limit, or a rank of a rank, is another statement).
    """
    found = set(relations)
    if wanted in ("limit", "rank"):
        return found <= {"=", wanted} and list(relations).count(wanted) == 1
    allowed = {"=": {"="}, "<=": {"=", "<=", "<"}, "<": {"=", "<=", "<"}}.get(wanted, set())
    return found <= allowed and (wanted != "<" or "<" in found)


def check_conditions(claim: Claim) -> Verdict | None:
    """None when every step rests on the claim's own assumptions, read as the claim reads them; else why not.

    An assumption about an index speaks of that index where it is free in the statement, and of every index in its range
    where it isn't. So an index that is free in the claim must be free in every step that assumes something of it; and
    one that only steps mention needs a range that the claim states not to be empty, as AtLeast(d_k, 1).
    """
    given = _fixed(claim)
    for number, step in enumerate(claim.steps, 1):
        for one in step.assumptions:
            if one not in claim.assumptions:
                return Verdict.unknown(f"step {number} assumes {one}, which the claim doesn't state")
        own = _fixed(step)
        for index in sorted(own - given, key=str):
            if not _has_values(claim, index):
                return Verdict.unknown(
                    f"step {number} is about one {index}, and the claim doesn't state that one exists"
                )
        for one in step.assumptions:
            if not isinstance(one, (InRange, str)):
                lost = _mentioned(one) & (given - own)
                if lost:
                    names = ", ".join(sorted(map(str, lost)))
                    return Verdict.unknown(f"step {number} reads {one} for every {names}, and the claim for one")
    return None


def _has_values(claim: Claim, index: Any) -> bool:
    lengths = {a.upper - a.lower + 1 for a in claim.assumptions if isinstance(a, InRange) and a.index == index}
    stated = {a.size for a in claim.assumptions if isinstance(a, AtLeast) and a.least >= 1}
    others = [a for a in claim.assumptions if isinstance(a, (AtLeast, Ordered, Distinct))]
    return len(lengths) == 1 and lengths <= stated and not any(index in _mentioned(a) for a in others)


def _fixed(stated: Claim | Step) -> set[Any]:
    """The indices with a range that are free in the sides."""
    ranged = {a.index for a in stated.assumptions if isinstance(a, InRange)}
    return ranged & (_symbols(stated.lhs) | _symbols(stated.rhs))


def _mentioned(one: Assumption) -> set[Any]:
    if isinstance(one, Defined):
        return _symbols(one.body) - set(one.indices)
    return set().union(*(_symbols(value) for value in vars(one).values()))


def _symbols(expr: Any) -> set[Any]:
    return set(getattr(expr, "free_symbols", ()))


@cache
def _prove(claim_id: str) -> Verdict:
    return _judge(claim(claim_id))


def _is_registered(one: Claim) -> bool:
    family = one.id.split(".")[0]
    return family in family_names() and _family(family).get(one.id) is one


@cache
def family_names() -> tuple[str, ...]:
    """Names of the claim families: the modules of `derive.families`, in reading order."""
    package = importlib.import_module("derive.families")
    found = {m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")}
    order = [name for name in package.ORDER if name in found]
    return tuple(order + sorted(found - set(order)))


@cache
def _family(name: str) -> dict[str, Claim]:
    module = importlib.import_module(f"derive.families.{name}")
    table: dict[str, Claim] = {}
    for one in module.claims():
        if one.id.split(".")[0] != name or one.id in table:
            raise DeriveError(f"claim id {one.id!r} in family {name!r} is not file.name, or is there twice")
        table[one.id] = one
    return table


def claims(family: str | None = None) -> list[Claim]:
    """All claims, or those of one family, in reading order."""
    if family is not None and family not in family_names():
        raise UnknownClaim(f"no claim family {family!r}; families are {', '.join(family_names())}")
    names = family_names() if family is None else (family,)
    return [one for name in names for one in _family(name).values()]


def claim(claim_id: str) -> Claim:
    """The claim with this id. Raises UnknownClaim, with the nearest ids, if there is none."""
    family = claim_id.split(".")[0]
    if family in family_names() and claim_id in _family(family):
        return _family(family)[claim_id]
    ids = [one.id for one in claims()]
    near = difflib.get_close_matches(claim_id, ids, n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `attnproof derive --list` shows all"
    raise UnknownClaim(f"unknown claim {claim_id!r}{hint}")
