"""A claim for the terminal: statement, letters, definitions, conditions, steps with their rules' reasons, verdict.

Guarantees: what is printed is what was checked, by derive's own printer; every letter is explained.
Does not: wrap lines; the terminal does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verify.reporting.formulas import condition_text, statement, text
from verify.reporting.symbols import explained
from verify.reporting.words import Language, condition_words, data_words, joined, reason, say

if TYPE_CHECKING:
    from derive.catalogue import Claim
    from derive.step import Step
    from derive.verdict import Verdict


def plain_text(claim: Claim, verdict: Verdict, language: Language = "en") -> str:
    """A claim for the terminal."""
    from derive.assumptions import Defined

    lines = [f"{claim.id}: {claim.title[language]}", f"  {statement(claim.lhs, claim.relation, claim.rhs)}"]
    defined = [a for a in claim.assumptions if isinstance(a, Defined)]
    others = [a for a in claim.assumptions if not isinstance(a, Defined)]
    lines += _block("Definitions", [condition_text(a) for a in defined], language)
    lines += _block(
        "Conditions",
        [_condition(a, language) for a in others],
        language,
    )
    lines += _block("Symbols", [f"{text(one)}: {meaning}" for one, meaning in explained(claim, language)], language)
    lines.append(f"  {say('Proof', language)}")
    for number, step in enumerate(claim.steps, 1):
        if len(claim.steps) > 1:
            lines.append(f"    {number}. {statement(step.lhs, step.relation, step.rhs)}")
        lines.append(f"    {_by(step, language)}")
    used = dict.fromkeys(step.rule for step in claim.steps)
    lines += _block("Rules", [f"{name}: {reason(name, language)}" for name in used], language)
    if note := claim.note.get(language):
        lines.append(f"  {note}")
    return "\n".join([*lines, f"  {say('Source: {}', language, claim.source)}", f"  {verdict}"])


def _condition(one: Any, language: Language) -> str:
    if isinstance(one, str):
        return condition_words(one, language)
    return data_words(one, language) or condition_text(one)


def _block(name: str, rows: list[str], language: Language) -> list[str]:
    return [f"  {say(name, language)}", *(f"    {row}" for row in rows)] if rows else []


def _by(step: Step, language: Language) -> str:
    premises = say(", from {}", language, ", ".join(step.premises)) if step.premises else ""
    return joined(say("By {}{}.", language, step.rule, premises), step.note.get(language, ""), language)
