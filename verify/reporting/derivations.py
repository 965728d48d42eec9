"""Claims with their steps, as Markdown and as data.

Guarantees: a page is printed from the very steps that were checked, in their order, with the rule of each and the
verdict of the claim; nothing on it depends on the machine, so that it can be compared to the byte.
Does not: prove; verdicts are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from verify.reporting.formulas import block, condition, latex, matrix_form, statement
from verify.reporting.github import safe
from verify.reporting.words import (
    Language,
    condition_words,
    data_words,
    joined,
    own,
    reason,
    say,
    verdict_words,
)

if TYPE_CHECKING:
    from derive.catalogue import Claim
    from derive.step import Step
    from derive.verdict import Verdict

Proved = Sequence[tuple["Claim", "Verdict"]]
_STOP = {"en": ".", "ja": "。"}
_KINDS = ("Proved", "ExactAtSizes", "Numeric", "Assumed", "Unknown", "Refuted")


def record(claim: Claim, verdict: Verdict) -> dict[str, Any]:
    """One claim as plain data."""
    return {
        "id": claim.id,
        "title": dict(claim.title),
        "statement": statement(claim.lhs, claim.relation, claim.rhs),
        "assumptions": [str(a) for a in claim.assumptions],
        "source": str(claim.source),
        "steps": [_step_record(s) for s in claim.steps],
        "verdict": verdict.to_json(),
    }


def _step_record(step: Step) -> dict[str, Any]:
    return {
        "statement": statement(step.lhs, step.relation, step.rhs),
        "rule": step.rule,
        "premises": list(step.premises),
        "note": step.note.get("en", ""),
    }


def markdown(claim: Claim, verdict: Verdict, language: Language = "en") -> str:
    """A claim as a section of a Markdown page."""
    parts = [f"### {claim.id}", f"**{own(claim.title, language)}{_STOP[language]}** {verdict_words(verdict, language)}"]
    parts.append(block(claim.lhs, claim.relation, claim.rhs))
    if matrix := matrix_form(claim):
        parts.append(f"{say('In matrix form the right side is', language)}\n\n{matrix}")
    if claim.assumptions:
        told = (f"- {_condition(a, language)}" for a in claim.assumptions)
        parts.append("\n".join([say("Conditions:", language), "", *told]))
    parts.append(_steps(claim, language))
    if note := own(claim.note, language):
        parts.append(note)
    parts.append(say("Source: {}", language, claim.source))
    return "\n\n".join(parts)


def _condition(one: Any, language: Language) -> str:
    if isinstance(one, str):
        return f"`{condition_words(one, language)}`"
    told = data_words(one, language)
    return f"`{told}`" if told else condition(one)


def _steps(claim: Claim, language: Language) -> str:
    if len(claim.steps) == 1:
        only = claim.steps[0]
        return say("One step, by `{}`{}.", language, only.rule, _premises(only, language))
    parts = [say("Steps:", language)]
    for number, step in enumerate(claim.steps, 1):
        by = say("{}. by `{}`{}.", language, number, step.rule, _premises(step, language))
        parts.append(joined(by, own(step.note, language), language))
        parts.append(block(step.lhs, step.relation, step.rhs))
    return "\n\n".join(parts)


def _premises(step: Step, language: Language) -> str:
    return say(", from {}", language, ", ".join(f"`{p}`" for p in step.premises)) if step.premises else ""


def tally(verdicts: Iterable[Verdict]) -> str:
    """Counts of verdicts by kind, strongest first: `12 Proved, 1 Numeric`."""
    kinds = [v.kind.title for v in verdicts]
    return ", ".join(f"{kinds.count(k)} {k}" for k in _KINDS if k in kinds) or "none"


def page(proved: Proved, language: Language = "en") -> str:
    """The whole page of derivations."""
    families: dict[str, list[tuple[Claim, Verdict]]] = {}
    for claim, verdict in proved:
        families.setdefault(claim.id.split(".")[0], []).append((claim, verdict))
    header = [say(word, language) for word in ("claim", "what it says", "verdict")]
    rows = [f"| [{c.id}](#{c.id.replace('.', '')}) | {own(c.title, language)} | {v.kind.title} |" for c, v in proved]
    parts = [
        f"# {say('Derivations', language)}",
        say("derivations", language),
        say("{} claims: {}.", language, len(proved), tally(v for _, v in proved)),
        "\n".join([f"| {' | '.join(header)} |", "|---|---|---|", *rows]),
    ]
    for family, members in families.items():
        parts.append(f"## {family}")
        parts += [markdown(claim, verdict, language) for claim, verdict in members]
    if letters := _symbols([c for c, _ in proved], language):
        parts += [f"## {say('Symbols', language)}", say("symbols", language), letters]
    parts += [f"## {say('Rules', language)}", _rules(proved, language)]
    parts += [f"## {say('References', language)}", references([c for c, _ in proved])]
    return "\n\n".join(parts) + "\n"


def _symbols(claims: Iterable[Claim], language: Language) -> str:
    """What the nodes of moments and rows mean, each kind once, by the first example of it; "" where there are none."""
    import sympy

    from verify.reporting.symbols import explained

    found: dict[str, tuple[Any, str]] = {}
    for claim in claims:
        for one, meaning in explained(claim, language):
            if not isinstance(one, sympy.Symbol):
                found.setdefault(type(one).__name__, (one, meaning))
    return "\n".join(f"- ${safe(latex(one))}$: {meaning}" for one, meaning in found.values())


def _rules(proved: Proved, language: Language) -> str:
    from derive.rules import rules

    known = rules()
    used = sorted({s.rule for c, _ in proved for s in c.steps})
    if language == "ja":
        return "\n".join(f"- `{name}`: {reason(name, language)}" for name in used)
    return "\n".join(f"- `{name}`: {(known[name].__doc__ or '').strip().splitlines()[0]}" for name in used)


def references(claims: Iterable[Claim]) -> str:
    """The sources used, each once."""
    unplaced = {c.source.key: str(c.source.at("")) for c in claims}
    return "\n".join(f"- {text}" for _, text in sorted(unplaced.items()))
