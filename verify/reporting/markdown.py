"""Markdown from tables, tests and pictures.

Guarantees: cells cannot break a table. Does not: hold content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verify.reporting.numbers import cell
from verify.reporting.words import Language, known, say
from verify.studies.study import Cell, StudyResult, Table, Test

_WORDS = {True: "holds", False: "**fails**", None: "undecided"}


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table; numbers to four digits."""
    lines = [_line(header), "|" + "---|" * len(header)]
    return "\n".join(lines + [_line([cell(c) for c in row]) for row in rows])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def titled(one: Table, language: Language = "en") -> str:
    """A table under its title."""
    rows = [[known(c, language) if isinstance(c, str) else c for c in row] for row in one.rows]
    return f"**{known(one.title, language)}**\n\n{table([known(h, language) for h in one.header], rows)}"


def judged(found: Sequence[Test], language: Language = "en") -> str:
    """The tests of a study, with their verdicts."""
    header = [say(word, language) for word in ("tested", "verdict", "evidence")]
    rows = [(known(t.statement, language), say(_WORDS[t.passed], language), known(t.detail, language)) for t in found]
    return table(header, rows)


def linked(claim_id: str, language: Language = "en") -> str:
    """A claim's id with a link to its section of the page of derivations. Raises UnknownClaim."""
    import derive

    page = "derivation.md" if language == "en" else "derivation.ja.md"
    return f"[`{derive.claim(claim_id).id}`]({page}#{claim_id.replace('.', '')})"


def with_links(text: str, language: Language = "en") -> str:
    """Text whose claims, written as `family.name`, become links."""
    return re.sub(r"`([a-z_]+\.[a-z_0-9]+)`", lambda found: linked(found[1], language), text)


def picture(file: str, text: str) -> str:
    """An image, with what it shows for readers who can't see it."""
    return f"![{text}]({file})"


def study(
    result: StudyResult,
    *,
    image: str | None = None,
    shows: str = "",
    tables: Sequence[str] = (),
    language: Language = "en",
) -> str:
    """A study as a section body: outcome, tests, picture, tables (all, or those whose title begins with one named).

    shows: what the picture shows, for readers who can't see it; the study's title when left out.
    """
    chosen = [t for t in result.tables if not tables or any(t.title.startswith(name) for name in tables)]
    laws = say(" Law: {}.", language, ", ".join(linked(c, language) for c in result.claims)) if result.claims else ""
    outcome = say(result.outcome, language)
    head = say("Outcome: **{}**.{} Again: `{}` (seed {}).", language, outcome, laws, result.command, result.seed)
    parts = [head, judged(result.tests, language)]
    if image:
        parts.append(picture(image, known(shows or result.title, language)))
    notes = [known(note, language) for note in result.notes]
    return "\n\n".join([*parts, *(titled(t, language) for t in chosen), *notes])
