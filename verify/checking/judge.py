"""The check itself: ask, judge in order, report.

Guarantees: the order is metadata, NaN and inf, values (designed inputs, then random ones), properties, conventions,
gradients, statistics; a fault that stops the target (hang, crash) ends the run, and what was left out is listed under
"not shown". Equal seeds give equal questions.
Does not: call something proved wrong for being merely unlikely: that is "suspicious", with its probability.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from verify.checking.allowance import Judge, parse_algorithm
from verify.checking.calls import Call, Reply
from verify.checking.cases import BUILT_IN, Case, Setting, as_features
from verify.checking.conventions import Met, conventions, gradient_determinism, reading_of
from verify.checking.diagnose import FLOAT32
from verify.checking.extent import Extent
from verify.checking.gradients import gradient_findings
from verify.checking.inputs import PLAIN
from verify.checking.ledger import Ledger, Stop
from verify.checking.ledger import Plan as Plan
from verify.checking.masked import MASKED
from verify.checking.properties import Broken, properties
from verify.checking.reference import USUAL, Reading
from verify.checking.result import CheckResult, Class, Convention
from verify.checking.runner import Subject
from verify.checking.specs import CONVENTIONS
from verify.checking.statistics import suspicious
from verify.checking.values import Answer, answer, differences, metadata
from verify.checking.variants import VARIANTS, groups
from verify.checking.wording import KINDS
from verify.errors import UsageError

STOPS = ("hang", "died")
QUICK_MOST_KEYS = 41000


class Session(Ledger):
    """One check of one subject in one dtype."""

    def __init__(self, subject: Subject, dtype: str, plan: Plan) -> None:
        self.subject = subject
        has = as_features(subject.profile, plan.declared)
        self.setting = Setting(subject.profile, plan.declared, dtype, has, plan.quick)
        self.judge: Judge = parse_algorithm(plan.algorithm, dtype)
        self.reading: Reading = USUAL
        super().__init__(plan)
        self.conventions: list[Convention] = []
        self.not_shown: list[str] = []
        self.out_of_domain: list[str] = []
        self.statistics: dict[str, float] = {}
        self.cases = self.calls = 0
        self.tried, self.tried_gradients = Extent(), Extent()
        self.graded = 0
        self.unsupported = False
        self.unmet: list[str] = []
        self.open: list[str] = []
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
        corner = next((m.convention.met for m in met if m.convention.name == "causal"), None)
        if corner in CONVENTIONS["causal"] and self.setting.corner is None:
            self.setting = replace(self.setting, met_corner=corner)
        elif corner is not None and self.setting.corner is None and not corner.startswith("refuses"):
            self.open.append("n ≠ m with causal was not judged: declare --spec causal=top-left or bottom-right")
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
        self.findings += [replace(f, seed=self.plan.seed, replay=self.plan.replay) for f in suspects]

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
        if self.setting.met_corner is not None:
            self.not_shown.append(
                f"whether {self.setting.met_corner} is the causal corner that is meant: it is the one that a probe met"
                f" (--spec causal={self.setting.met_corner}, if meant)"
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
        self.asked |= dict.fromkeys(f.kind for f in self.findings if f.kind in KINDS)
        missing = [kind for kind in KINDS if kind not in self.asked]
        if missing:
            self.not_shown.append(f"no input was about: {', '.join(missing)}")

    def _result(self) -> CheckResult:
        return CheckResult(
            target=self.subject.profile.name,
            dtype=self.setting.dtype,
            algorithm=self.judge.text,
            seed=self.plan.seed,
            # What only a coarser format would explain comes after what no format explains.
            findings=tuple(sorted(self.findings, key=lambda f: f.diagnosis == FLOAT32)),
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
            open=tuple(self.open),
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
