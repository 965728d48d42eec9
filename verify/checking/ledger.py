"""The findings of a run: named, shrunk, and filed once.

Guarantees: of one kind the first finding is kept, with the smallest failing call that was found; a diagnosis holds
only while no other failing case refutes it; a failure of features that meet is told as such, once.
Does not: ask or judge; `judge.Session` does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from verify.checking.calls import Call, Reply
from verify.checking.cases import Case, Setting
from verify.checking.diagnose import NOTHING, Evidence, choose, diagnose, evidence, says
from verify.checking.grouping import features_of, numbers_of
from verify.checking.result import Class, Finding
from verify.checking.shrink import OFF, shown, shrink, without_features
from verify.checking.specs import Declared
from verify.checking.values import Answer, Violation, comparable, differences, overshoot
from verify.checking.wording import needs, row_text

NO_KEYS: tuple[tuple[int, float], ...] = ()
# By how much an error must fall without a feature to need it: inputs of one kind move one fault's error nearly so far.
CLEARLY = 3.0


class Stop(Exception):
    """The target can't go on, or the budget is spent."""


@dataclass
class Plan:
    """How much to ask. dtypes: how many the run asks; one of several that the target lacks is no fault of it."""

    declared: Declared = field(default_factory=Declared)
    algorithm: str | Any | None = None
    seed: int = 0
    quick: bool = False
    budget: float | None = None
    gradients: bool = False
    replay: str = ""
    statistics: bool = True
    first: bool = False
    dtypes: int = 1

    @property
    def several(self) -> bool:
        return self.dtypes > 1


class Ledger:
    """What a run found so far."""

    setting: Setting

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.findings: list[Finding] = []
        # What each failing case says of the misreadings; and of each finding: its case's evidence, what it was about.
        self._evidence: list[Evidence] = []
        self._grounds: list[tuple[Evidence, str]] = []
        self._together: dict[frozenset[str], int] = {}  # features wrong only where they meet, and the finding

    def solve(self, call: Call) -> Answer:
        """The right answer of a call."""
        raise NotImplementedError

    def _ask_lightly(self, call: Call) -> Reply:
        """The target's answer."""
        raise NotImplementedError

    def _report(self, case: Case, reply: Reply | None, violation: Violation, verdict: Class, told: str = "") -> None:
        kind, diagnosis, ground = self._name(case, reply, violation)
        diagnosis = told or diagnosis
        for i, old in enumerate(self.findings):
            if old.kind == kind:
                if diagnosis and not old.diagnosis:
                    if not told and not says(self._grounds[i][0], diagnosis):
                        continue  # it explains this case and not the one that the finding shows
                    self.findings[i] = replace(old, diagnosis=diagnosis)
                return
        call = case.call
        needed: tuple[str, ...] = ()
        if reply is not None and violation.rule in ("values", "non-finite") and comparable(call, reply):
            if not diagnosis and any(found <= case.together for found in self._together):
                return
            call, violation, needed, held = self._shrunk(case, kind, violation, "" if told else diagnosis)
            diagnosis = diagnosis if told or held else ""
        if needed:
            named = bool(diagnosis)
            kind, diagnosis = needs(kind, diagnosis, needed)
            same = self._together.setdefault(frozenset(needed), len(self.findings))
            if same < len(self.findings):
                if named:
                    self.findings[same] = replace(self.findings[same], kind=kind, diagnosis=diagnosis)
                return
        self.findings.append(self._finding(case, call, violation, verdict, kind, diagnosis))
        self._grounds.append((ground, case.about))
        if self.plan.first:
            raise Stop("one finding was enough")

    def _name(self, case: Case, reply: Reply | None, violation: Violation) -> tuple[str, str, Evidence]:
        """(kind, diagnosis, what the case says of the misreadings)."""
        metadata_kinds = ("mutation", "dtype", "global state", "hang", "died", "memory", "type")
        if violation.rule in metadata_kinds:
            return ("mutation" if case.about == "mutation" else violation.rule), "", NOTHING
        if violation.rule in ("raises", "shape"):
            return (violation.rule if case.about == "values" else case.about), "", NOTHING
        if reply is None:
            return case.about, "", NOTHING
        known = self.solve(case.call)
        if violation.name == "lse":
            named, ground = diagnose(case.call, reply, known, violation, case.about), NOTHING
        else:
            ground = evidence(case.call, reply, known, violation)
            self._evidence.append(ground)
            named = choose(ground, case.about, {f.diagnosis for f in self.findings if f.diagnosis})
        return (*(named or (case.about, "")), ground)

    def _agree_on_diagnoses(self) -> None:
        """Keep a misreading as diagnosis only if it explains every failing case that it changes.

        One that some case refutes gives way to one that no case refutes and that explains the finding's case, or to
        none; the finding is then filed under what its case is about.
        """
        refuted = frozenset().union(*(e.refuted for e in self._evidence))
        support = Counter(text for e in self._evidence for _, text in e.fits)
        for i, finding in enumerate(self.findings):
            ground, about = self._grounds[i] if i < len(self._grounds) else (NOTHING, "")
            texts = [text for _, text in ground.fits if text not in refuted]
            if finding.diagnosis in refuted and finding.diagnosis in {text for _, text in ground.fits}:
                best = max(texts, key=lambda t: support[t], default="")
                self.findings[i] = replace(finding, kind=about, diagnosis=best)
            elif not finding.diagnosis and texts:
                best = max(texts, key=lambda t: support[t])
                if support[best] > 1:
                    self.findings[i] = replace(finding, diagnosis=best)

    def _shrunk(
        self, case: Case, kind: str, violation: Violation, diagnosis: str
    ) -> tuple[Call, Violation, tuple[str, ...], bool]:
        """(a smaller call that still fails in the same way, or the call itself; its violation; the features it needs;
        whether the diagnosis holds on it too).

        Features are told of a case of the covering design only, and only where the error falls clearly without them.
        """
        last: list[Violation] = []

        def fails(call: Call) -> bool:
            reply = self._ask_lightly(call)
            if not comparable(call, reply):
                return False
            known = self.solve(call)
            found = [d for d in differences(call, reply, known) if d.rule == violation.rule]
            if not found:
                return False
            named = diagnose(call, reply, known, found[0], case.about)
            if named is not None and named[0] != kind and not case.together:
                return False
            last.append(found[0])
            return True

        def holds(call: Call) -> bool:
            reply = self._ask_lightly(call)
            known = self.solve(call)
            found = [d for d in differences(call, reply, known) if d.rule == violation.rule]
            if not comparable(call, reply) or not found:
                return False
            if violation.name == "lse":
                return (diagnose(call, reply, known, found[0], case.about) or ("", ""))[1] == diagnosis
            return says(evidence(call, reply, known, found[0]), diagnosis)

        def fails_alike(call: Call) -> bool:
            return fails(call) and (not held or holds(call))

        tries = 24 if self.plan.quick else 80
        start, needed = without_features(case.call, fails, case.together, self.setting.base)
        held = bool(diagnosis) and (start is case.call or holds(start))
        small = shrink(start, fails_alike, tries=tries)
        if small is not case.call:
            violation = next(d for d in self._differences(small) if d.rule == violation.rule)
        return small, violation, needed if self._clearly(start, needed) else (), held

    def _differences(self, call: Call) -> list[Violation]:
        """What is wrong with the target's answer to a call."""
        return differences(call, self._ask_lightly(call), self.solve(call))

    def _clearly(self, call: Call, needed: tuple[str, ...]) -> bool:
        """Whether the error falls by a clear factor when any one of the features goes.

        An error just beyond the allowance falls below it by chance: that says nothing of the features.
        """

        def ratio(one: Call) -> float:
            return overshoot(one, self._ask_lightly(one), self.solve(one))

        return not needed or ratio(call) >= CLEARLY * max(ratio(OFF[name](call, self.setting.base)) for name in needed)

    def _finding(
        self, case: Case, call: Call, violation: Violation, verdict: Class, kind: str, diagnosis: str
    ) -> Finding:
        row, dominant = "", NO_KEYS
        if len(violation.index) >= 3 and violation.name in ("output", "lse"):
            row, dominant = row_text(self.solve(call), violation.index)
        return Finding(
            verdict=verdict,
            kind=kind,
            rule=violation.rule,
            message=violation.message,
            case=case.name,
            about=case.about,
            diagnosis=diagnosis,
            index=violation.index,
            got=violation.got,
            expected=violation.expected,
            radius=violation.radius,
            allowed=violation.allowed,
            why=violation.why,
            ulp=violation.ulp,
            row=row,
            dominant=dominant,
            smallest=shown(call),
            features=features_of(call, case.about),
            numbers=numbers_of(call),
            dtype=self.setting.dtype,
            seed=self.plan.seed,
            replay=self.plan.replay,
        )
