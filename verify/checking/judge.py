"""The check itself: ask, judge in order, name, shrink, report.

Guarantees: the order is metadata, NaN and inf, values (designed inputs, then random ones), properties, conventions,
gradients, statistics; a fault that stops the target (hang, crash) ends the run, and what was left out is listed under
"not shown". Equal seeds give equal questions.
Does not: call something proved wrong for being merely unlikely: that is "suspicious", with its probability.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from verify.checking.allowance import Judge, parse_algorithm
from verify.checking.calls import Call, Reply
from verify.checking.cases import BUILT_IN, Case, Setting, as_features
from verify.checking.conventions import Met, conventions, gradient_determinism, reading_of
from verify.checking.diagnose import NOTHING, Evidence, choose, diagnose, evidence
from verify.checking.extent import Extent
from verify.checking.gradients import gradient_findings
from verify.checking.grouping import features_of, numbers_of
from verify.checking.inputs import PLAIN
from verify.checking.masked import MASKED
from verify.checking.properties import Broken, properties
from verify.checking.reference import USUAL, Reading
from verify.checking.result import CheckResult, Class, Convention, Finding
from verify.checking.runner import Subject
from verify.checking.shrink import shown, shrink, without_features
from verify.checking.specs import Declared
from verify.checking.statistics import suspicious
from verify.checking.values import Answer, Violation, answer, comparable, differences, metadata
from verify.checking.variants import VARIANTS, groups
from verify.checking.wording import KINDS, needs, row_text
from verify.errors import UsageError

NO_KEYS: tuple[tuple[int, float], ...] = ()
STOPS = ("hang", "died")
QUICK_MOST_KEYS = 41000


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


class Session:
    """One check of one subject in one dtype."""

    def __init__(self, subject: Subject, dtype: str, plan: Plan) -> None:
        self.subject, self.plan = subject, plan
        has = as_features(subject.profile, plan.declared)
        self.setting = Setting(subject.profile, plan.declared, dtype, has, plan.quick)
        self.judge: Judge = parse_algorithm(plan.algorithm, dtype)
        self.reading: Reading = USUAL
        self.findings: list[Finding] = []
        self.conventions: list[Convention] = []
        self.not_shown: list[str] = []
        self.out_of_domain: list[str] = []
        self.statistics: dict[str, float] = {}
        self.cases = self.calls = 0
        self.tried, self.tried_gradients = Extent(), Extent()
        self.graded = 0
        self.unsupported = False
        self.unmet: list[str] = []
        # What each failing case says of the misreadings; and of each finding: its case's evidence, what it was about.
        self._evidence: list[Evidence] = []
        self._grounds: list[tuple[Evidence, str]] = []
        self._together: dict[frozenset[str], int] = {}  # features wrong only where they meet, and the finding
        self.asked: dict[str, None] = {}
        self.start = time.monotonic()
        self._answers: dict[int, tuple[Call, Answer]] = {}

    # -- asking -----------------------------------------------------------------------------------------------------

    def ask(self, call: Call) -> Reply:
        """One question, within the budget."""
        if self.plan.budget is not None and time.monotonic() - self.start > self.plan.budget:
            raise Stop(f"the budget of {self.plan.budget:g} s was spent")
        self.calls += 1
        return self.subject.ask(call)

    def solve(self, call: Call) -> Answer:
        """The right answer (kept, since shrinking and properties ask again)."""
        kept = self._answers.get(id(call))
        if kept is None or kept[0] is not call:
            if len(self._answers) > 64:
                self._answers.clear()
            kept = (call, answer(call, self.judge, self.reading))
            self._answers[id(call)] = kept
        return kept[1]

    # -- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> CheckResult:
        """Everything, in order."""
        try:
            met = self._smoke_and_conventions()
            if self.unsupported:
                return self._result()
            self._values()
            self._properties()
            self._agree_on_diagnoses()  # so that a declared convention is not taken for one that was misread
            for one in met:
                if one.broken is not None:
                    self._broken(one.broken)
            if "grad" in self.setting.has and (self.plan.gradients or self.subject.profile.like == "numpy"):
                self._gradients()
            if self.plan.statistics and all(f.verdict == "suspicious" for f in self.findings):
                self._statistics()
        except Stop as stop:
            if not self.cases and not self.findings:
                raise UsageError(f"no input was judged: {stop}; raise --budget") from stop
            self.not_shown.insert(0, f"the run ended early: {stop}; what follows it was not asked")
        self._agree_on_diagnoses()
        if self.plan.gradients and not self.graded:
            self.unmet.append(f"{self.setting.dtype}: gradients were asked for, and no gradient was judged")
        self._blind_spots()
        return self._result()

    def _smoke_and_conventions(self) -> list[Met]:
        rng = np.random.default_rng(self.plan.seed)
        q, k, v = self.setting.normal(rng, 5, 5, 4)
        call = self.setting.call(q, k, v)
        reply = self.ask(call)
        dtype = self.setting.dtype
        if _refused(reply) and not self.plan.several:
            raise UsageError(f"{self.subject.profile.name} refuses {dtype}: {reply.message[:300]}")
        if self.plan.several and (_refused(reply) or lacks_dtype(reply, dtype)):
            self.unmet.append(f"{dtype} is not supported by the target ({reply.message[:200]})")
            self.unsupported = True
            return []
        hint = library_hint(reply, self.subject.profile.like)
        for violation in metadata(call, reply):
            self._report(Case("first call", violation.rule, call), reply, violation, "property broken", hint)
        if reply.fault is not None:
            raise Stop(f"the first call {'did not return' if reply.fault in STOPS else 'failed'}")
        met = []
        for one in conventions(self.setting, self._ask_lightly):
            met.append(one)
            self.conventions.append(one.convention)
        self.reading = reading_of(met, dict(self.plan.declared.conventions))
        self._answers.clear()
        base = next((m.convention.met for m in met if m.convention.name == "lse-base"), None)
        if base == "2" and "lse-base" not in self.plan.declared.conventions:
            spec = self.plan.declared.spec.with_(lse_base=2.0)
            self.setting = replace(self.setting, declared=replace(self.plan.declared, spec=spec))
        return met

    def _ask_lightly(self, call: Call) -> Reply:
        """For conventions: a target that stops on a probe is not asked that again."""
        reply = self.ask(call)
        if reply.fault in STOPS:
            self._report(
                Case("a convention probe", reply.fault, call), reply, metadata(call, reply)[0], "property broken"
            )
            raise Stop(f"the target {'hung' if reply.fault == 'hang' else 'died'} on a convention probe")
        return reply

    def _cases(self) -> Iterator[Case]:
        rng = np.random.default_rng(self.plan.seed + 1)
        for maker in (PLAIN[0], groups, *PLAIN[1:], *MASKED, *VARIANTS):
            for case in maker(self.setting, rng):
                if self.setting.fits(case.call):
                    if self.plan.quick and case.call.k.shape[2] > QUICK_MOST_KEYS:
                        continue
                    yield case

    def _values(self) -> None:
        for case in self._cases():
            if self._judge(case):
                self.cases += 1
                self.asked[case.about] = None

    def _judge(self, case: Case) -> bool:
        """Whether the reply could be judged: not where the target refuses the case."""
        reply = self.ask(case.call)
        if _refused(reply):
            self.not_shown.append(f"{case.name}: the target refuses it ({reply.message[:80]})")
            return False
        found = metadata(case.call, reply)
        for violation in found:
            self._report(case, reply, violation, "property broken")
        if reply.fault in STOPS:
            raise Stop(f"the target {'hung' if reply.fault == 'hang' else 'died'} on {case.name!r}")
        if reply.fault is None and not any(v.rule == "dtype" for v in found):
            known = self.solve(case.call)
            self.tried.add(case.call)
            if known.right.outside.any():
                self.out_of_domain.append(f"{case.name}: a score is +inf or NaN")
            for violation in differences(case.call, reply, known):
                self._report(case, reply, violation, "proved wrong")
        return True

    def _properties(self) -> None:
        rng = np.random.default_rng(self.plan.seed + 2)
        for broken in properties(self.setting, rng, self._ask_lightly, self.solve):
            self._broken(broken)

    def _broken(self, broken: Broken) -> None:
        case = Case(broken.property, broken.kind, broken.call)
        self._report(case, None, broken.violation, "property broken")

    def _gradients(self) -> None:
        for case, violation, text in gradient_findings(
            self.setting, self.plan, self._ask_graded, self.judge, self.reading, self.asked, self.not_shown
        ):
            verdict: Class = "proved wrong" if violation.rule in ("values", "non-finite") else "property broken"
            self._report(case, None, violation, verdict, text)
        for one in gradient_determinism(self.setting, self._ask_graded):
            self.asked["determinism"] = None
            self.conventions.append(one.convention)
            if one.broken is not None:
                self._broken(one.broken)

    def _ask_graded(self, call: Call) -> Reply:
        """Likewise, counting the answers that hold gradients."""
        reply = self._ask_lightly(call)
        if reply.gradients:
            self.tried_gradients.add(call)
        self.graded += bool(reply.gradients) or (reply.fault is not None and not _refused(reply))
        return reply

    def _statistics(self) -> None:
        suspects, figures, blind = suspicious(self.setting, self.plan, self._ask_lightly, self.judge, self.reading)
        self.statistics = figures
        self.not_shown += blind
        self.findings += [replace(f, seed=self.plan.seed, replay=self._replay()) for f in suspects]

    # -- reporting --------------------------------------------------------------------------------------------------

    def _report(self, case: Case, reply: Reply | None, violation: Violation, verdict: Class, told: str = "") -> None:
        kind, diagnosis, ground = self._name(case, reply, violation)
        diagnosis = told or diagnosis
        for i, old in enumerate(self.findings):
            if old.kind == kind:
                if not old.diagnosis and diagnosis:
                    self.findings[i] = replace(old, diagnosis=diagnosis)
                    self._grounds[i] = (ground, case.about)
                return
        call = case.call
        needed: tuple[str, ...] = ()
        if reply is not None and violation.rule in ("values", "non-finite") and comparable(call, reply):
            if not diagnosis and any(found <= case.together for found in self._together):
                return
            call, violation, needed = self._shrunk(case, kind, violation)
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

    def _shrunk(self, case: Case, kind: str, violation: Violation) -> tuple[Call, Violation, tuple[str, ...]]:
        """(a smaller call that still fails in the same way, or the call itself; its violation; the features it needs).

        Features are told of a case of the covering design only.
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

        tries = 24 if self.plan.quick else 80
        start, needed = without_features(case.call, fails, case.together, self.setting.base)
        small = shrink(start, fails, tries=tries)
        return small, last[-1] if small is not case.call else violation, needed

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
            replay=self._replay(),
        )

    def _replay(self) -> str:
        return self.plan.replay

    def _blind_spots(self) -> None:
        profile, has = self.subject.profile, self.setting.has
        for feature in (
            "mask",
            "bias",
            "causal",
            "scale",
            "window",
            "softcap",
            "sink",
            "alibi_slopes",
            "key_lengths",
            "lse",
        ):
            built = feature in BUILT_IN and getattr(self.setting.base, feature) not in (None, "none", 0)
            if (
                feature not in has
                and not built
                and not (feature == "alibi_slopes" and "alibi" in self.plan.declared.fields)
            ):
                self.not_shown.append(f"{feature}: the target has no such parameter")
        if "causal" in has and self.setting.corner is None:
            self.not_shown.append(
                "causal with n_q != n_k: no corner is declared (--spec causal=top-left or bottom-right)"
            )
        if "grad" not in has:
            self.not_shown.append("gradients: the target gives none")
        if self.setting.group == 1:
            self.not_shown.append("grouped heads: none declared (--spec groups=4)")
        self.not_shown += list(profile.note)
        told = (self.tried.beyond("values"), self.tried_gradients.beyond("gradients"))
        self.not_shown += [text for text in told if text]
        most = "two" if self.plan.quick else "three"
        self.not_shown.append(f"faults that need more than {most} features together (gradients: more than two)")
        missing = [kind for kind in KINDS if kind not in self.asked]
        if missing:
            self.not_shown.append(f"no input was about: {', '.join(missing)}")

    def _result(self) -> CheckResult:
        return CheckResult(
            target=self.subject.profile.name,
            dtype=self.setting.dtype,
            algorithm=self.judge.text,
            seed=self.plan.seed,
            findings=tuple(self.findings),
            conventions=tuple(self.conventions),
            out_of_domain=tuple(self.out_of_domain),
            not_shown=tuple(self.not_shown),
            asked=tuple(self.asked),
            statistics=self.statistics,
            switches=dict(self.subject.switches),
            cases=self.cases,
            calls=self.calls,
            seconds=time.monotonic() - self.start,
            unmet=tuple(self.unmet),
        )


def _refused(reply: Reply) -> bool:
    """Whether the target says itself that it does not do this."""
    return reply.fault == "raises" and reply.message.startswith("NotImplementedError")


_SPEAKS_OF = {"torch": ("torch", "Tensor"), "jax": ("jax", "Tracer"), "cupy": ("cupy",)}


def lacks_dtype(reply: Reply, dtype: str) -> bool:
    """Whether the target's library says, by a type error that speaks of dtypes, that it can't do this one."""
    if reply.fault != "raises" or dtype == "float64":
        return False
    error, _, text = reply.message.partition(": ")
    speaks = any(word in text for word in (dtype, "dtype", "data type", "ufunc", "Half", "BFloat16", "array type"))
    lacking = error in ("TypeError", "UFuncTypeError", "_UFuncNoLoopError", "UFuncNoLoopError")
    return speaks and (lacking or "not implemented for" in text or "not supported" in text)


def library_hint(reply: Reply, like: str) -> str:
    """Which array library a target that fails on NumPy's arrays seems to want, by what it says; "" if unknown."""
    if like != "numpy" or reply.fault not in ("raises", "type"):
        return ""
    for name, words in _SPEAKS_OF.items():
        if any(word in reply.message for word in words):
            return f"the target seems to take arrays of {name}, and was given NumPy's: try --like {name}"
    if "'numpy.ndarray' object has no attribute" in reply.message:
        return "the target was given NumPy's arrays and seems to take another library's: try --like torch or --like jax"
    return ""


def judge(
    subject: Subject, dtypes: list[str], plan: Plan, progress: Callable[[str], None] | None = None
) -> list[CheckResult]:
    """Check a subject in each dtype. The subject stays open."""
    results = []
    for dtype in dtypes:
        if progress is not None:
            progress(f"checking {subject.profile.name} in {dtype}")
        results.append(Session(subject, dtype, plan).run())
    return results
