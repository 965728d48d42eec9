"""A variant of attention outside `Spec`, judged against a float64 function of the user's own.

Guarantees: the same inputs, order and metadata rules as a usual check; the tolerance is that of the sensible
algorithms on the same inputs, since no theory of the variant is known. User properties are functions (call, reply) of
`q, k, v, output` that return None, or a message when they are broken.
Does not: certify the user's reference; its own rounding is covered by running it in float64 only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compute.spec import Spec
from verify.checking.allowance import allowed, sensible
from verify.checking.calls import Array
from verify.checking.cases import Case, Setting, as_features
from verify.checking.inputs import basic, cancelling, large
from verify.checking.reference import truth
from verify.checking.result import CheckResult, Finding
from verify.checking.runner import Local
from verify.checking.shrink import shown
from verify.checking.specs import Declared
from verify.checking.values import Violation, comparable, metadata, worst

Property = Callable[[Array, Array, Array, Array], str | None]


def check_custom(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    properties: Sequence[Property],
    *,
    dtype: Any,
    seed: int,
    like: str,
) -> CheckResult:
    """Judge `function(q, k, v)` against `reference(q, k, v)`, which is given float64 arrays of NumPy."""
    start = time.monotonic()
    name = dtype if isinstance(dtype, str) else next(iter(dtype))
    subject = Local(function, like=like)
    setting = Setting(subject.profile, Declared(), name, as_features(subject.profile, Declared()))
    rng, judge = np.random.default_rng(seed), sensible(name)
    findings: list[Finding] = []
    cases = 0
    for maker in (basic, large, cancelling):
        for case in maker(setting, rng):
            call = case.call
            if call.q.shape[2] == 0:
                continue
            cases += 1
            reply = subject.ask(call)
            found = [("property broken", v) for v in metadata(call, reply)]
            if comparable(call, reply) and reply.output is not None:
                wanted = np.asarray(reference(*(np.array(x, np.float64) for x in (call.q, call.k, call.v))))
                if wanted.shape != reply.output.shape or not np.isfinite(wanted).all():
                    findings.append(
                        _finding(
                            case, Violation("reference", _unusable(wanted, reply.output)), "property broken", name, seed
                        )
                    )
                    break
                right = truth(call.with_(spec=Spec()))
                room = allowed(call, right, judge)
                found += [
                    ("proved wrong", v)
                    for v in worst(reply.output, wanted.astype(np.longdouble), room.total * 2.0**-20, room.total,
                                   np.ones(wanted.shape, bool), "output", room.sources, reply.output.dtype)
                ]  # fmt: skip
                for test in properties:
                    said = test(call.q, call.k, call.v, reply.output)
                    if said is not None:
                        found.append(("property broken", Violation(getattr(test, "__name__", "property"), said)))
            findings += [
                _finding(case, violation, verdict, name, seed)
                for verdict, violation in found
                if case.about not in {f.kind for f in findings}
            ]
    return CheckResult(
        target=subject.profile.name, dtype=name, algorithm=f"against a reference of the user's own; {judge.text}",
        seed=seed, findings=tuple(findings), switches=dict(subject.switches), cases=cases, calls=cases,
        not_shown=("masks, corners, gradients: a custom reference is asked q, k, v only",),
        seconds=time.monotonic() - start,
    )  # fmt: skip


def _unusable(wanted: Array, output: Array) -> str:
    if wanted.shape != output.shape:
        return f"the reference gives shape {wanted.shape}, the target {output.shape}: nothing can be compared"
    return "the reference holds NaN or inf: that is never a pass"


def _finding(case: Case, violation: Violation, verdict: Any, dtype: str, seed: int) -> Finding:
    return Finding(
        verdict=verdict, kind=case.about, rule=violation.rule, message=violation.message, case=case.name,
        index=violation.index, got=violation.got, expected=violation.expected, radius=violation.radius,
        allowed=violation.allowed, why=violation.why, ulp=violation.ulp, smallest=shown(case.call),
        dtype=dtype, seed=seed, about=case.about,
    )  # fmt: skip
