"""The pages of the cross-checks and of the variance studies (the other studies: `verify.reporting.study_pages`).

Guarantees: each is a function of results; nothing of the machine or the moment is on it. Does not: run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from verify.reporting import markdown
from verify.reporting.formulas import block
from verify.reporting.words import Language, known, say, skipped_for
from verify.studies.study import Cell, StudyResult

if TYPE_CHECKING:
    from verify.crosschecks import CrossCheck

SCALING_SHOWS = "Variance of q·k against d_k: proportional to d_k unscaled, free of d_k scaled; measured over claimed"
_PARTS = {
    "exact": "both sides in 50 digits",
    "formula": "formula in float64",
    "computed": "`compute` in float64",
}


def correctness(checks: Sequence[CrossCheck], language: Language = "en") -> str:
    """The page of cross-checks."""
    parts = [f"# {say('Correctness', language)}", say("correctness", language), _counts(checks, language)]
    rows: list[tuple[Cell, ...]] = [
        (f"`{c.claim}`", say(c.status, language), *(_share(c, p, language) for p in _PARTS)) for c in checks
    ]
    header = [say(word, language) for word in ("claim", "outcome", *_PARTS.values())]
    parts.append(markdown.table(header, rows))
    reasons = _reasons(checks, language)
    if reasons:
        parts += [f"## {say('What did not apply', language)}", reasons]
    return "\n\n".join(parts) + "\n"


def _counts(checks: Sequence[CrossCheck], language: Language) -> str:
    found = {name: [c.parts[name].status for c in checks] for name in _PARTS}
    rows: list[tuple[Cell, ...]] = [
        (say(text, language), *(found[name].count(status) for status in ("agrees", "differs", "skipped")))
        for name, text in _PARTS.items()
    ]
    return markdown.table([say(word, language) for word in ("comparison", "agree", "differ", "do not apply")], rows)


def _share(check: CrossCheck, name: str, language: Language) -> str:
    """Agreement in a word; the share of the bound depends on the machine's exp and stays off the page."""
    part = check.parts[name]
    if part.status == "skipped":
        return "–"
    if name == "exact":
        return say(part.status, language)
    if part.status == "agrees":
        return say("within", language)
    return say("{} times the bound", language, f"{part.worst:.1g}")


def _reasons(checks: Sequence[CrossCheck], language: Language) -> str:
    grouped: dict[str, list[str]] = {}
    for check in checks:
        for name, part in check.parts.items():
            if part.status == "skipped":
                told = f"{say(_PARTS[name], language)}: {skipped_for(part.detail, language)}"
                grouped.setdefault(told, []).append(f"`{check.claim}`")
    return "\n".join(f"- {reason} ({', '.join(ids)})" for reason, ids in sorted(grouped.items()))


def scaling(main: StudyResult, others: Sequence[StudyResult], image: str | None, language: Language = "en") -> str:
    """The page of the variance studies on drawn queries and keys."""
    import derive

    law, scaled = derive.claim("variance.scores"), derive.claim("variance.scaled")
    parts = [
        f"# {say('Scaling', language)}",
        say("scaling", language),
        f"## {say('The law', language)}",
        block(law.lhs, law.relation, law.rhs),
        say("components", language),
        block(scaled.lhs, scaled.relation, scaled.rhs),
        f"## {say('Normal components', language)}",
        markdown.study(main, image=image, shows=SCALING_SHOWS, language=language),
        say("blocks", language),
        say("variance columns", language),
    ]
    if others:
        parts.append(f"## {say('Other components', language)}")
        parts.append(say("any law", language))
        for one in others:
            q, k = (known(one.data[name], language) for name in "qk")
            parts.append(f"### {say('q: {}; k: {}', language, q, k)}")
            parts.append(markdown.study(one, tables=("Levels",), language=language))
    return "\n\n".join(parts) + "\n"
