"""Findings put together so that a person reads one cause once, with its smallest example.

Guarantees: every finding is in exactly one group; findings of one diagnosis are one group; those without are grouped
by what is seen (wrong values, NaN or inf, ...) and by the features of the call that shows it, where a group of fewer
features takes in those of more: what is wrong without a mask needs no mask to be wrong.
Does not: prove a common cause; what a group took in may have one of its own, which shows once the first is mended.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from verify.checking.calls import Call
from verify.checking.result import ORDER, Finding

# Cases about these are of no feature of their own.
PLAIN = frozenset(
    ("values", "scale", "layout", "head padding", "d_v != d_k", "softmax missing", "softmax axis", "gradient")
)


def features_of(call: Call, about: str) -> frozenset[str]:
    """What a call has beyond q, k and v; where it has nothing, what its case is about."""
    found = set(call.features)
    if call.memory:
        found.add("memory")
    if not found - {"grad"} and about not in PLAIN:
        found.add(about)
    return frozenset(found)


def numbers_of(call: Call) -> int:
    """How many numbers a call holds: the smaller, the better an example."""
    return sum(array.size for array in call.arrays().values())


def symptom(finding: Finding) -> tuple[Hashable, ...]:
    """What is seen: findings of different symptoms are never put together."""
    if finding.rule == "raises":
        return "raises", finding.message
    if finding.rule == "non-finite":
        return "NaN or inf", "grad" in finding.features
    wrong = finding.rule == "values" or bool(finding.index)
    return ("wrong values" if wrong else finding.rule), "grad" in finding.features


def grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """The groups in the order of their first finding, each with its clearest example first."""
    named: dict[tuple[Hashable, ...], list[Finding]] = {}
    unnamed: list[tuple[tuple[Hashable, ...], frozenset[str], list[Finding]]] = []
    groups: list[list[Finding]] = []
    for finding in findings:
        if finding.diagnosis:
            key = (finding.verdict, finding.dtype, finding.diagnosis)
            if key not in named:
                named[key] = []
                groups.append(named[key])
            named[key].append(finding)
    for finding in sorted((f for f in findings if not f.diagnosis), key=lambda f: (len(f.features), _rank(f))):
        seen = (finding.dtype, *symptom(finding))
        home = next((g for key, fewest, g in unnamed if key == seen and fewest <= finding.features), None)
        if home is None:
            home = []
            unnamed.append((seen, finding.features, home))
            groups.append(home)
        home.append(finding)
    place = {id(finding): i for i, finding in enumerate(findings)}
    groups.sort(key=lambda group: min(place[id(f)] for f in group))
    return groups


def _rank(finding: Finding) -> tuple[int, int]:
    """Strongest verdict first, then the smallest example."""
    return ORDER.index(finding.verdict), finding.numbers


def refusals(texts: Sequence[str]) -> list[str]:
    """`texts`, with the cases that a target refuses for one reason on one line."""
    lines: list[str] = []
    cases: dict[str, list[str]] = {}
    for text in texts:
        case, refused, reason = text.partition(": the target refuses it ")
        if not refused:
            lines.append(text)
            continue
        if reason not in cases:
            lines.append(reason)
        cases.setdefault(reason, []).append(case)
    return [_refused(line, cases[line]) if line in cases else line for line in lines]


def _refused(reason: str, cases: list[str]) -> str:
    if len(cases) == 1:
        return f"{cases[0]}: the target refuses it {reason}"
    more = f", and {len(cases) - 3} more" if len(cases) > 3 else ""
    return f"{len(cases)} cases: the target refuses them {reason}: {'; '.join(cases[:3])}{more}"
