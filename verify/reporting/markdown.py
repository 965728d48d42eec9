"""Markdown from tables, tests and pictures.

Guarantees: cells cannot break a table. Does not: hold content.
"""

from __future__ import annotations

from collections.abc import Sequence

from verify.reporting.numbers import cell
from verify.studies.study import Cell, StudyResult, Table, Test

_WORDS = {True: "holds", False: "**fails**", None: "undecided"}


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table; numbers to four digits."""
    lines = [_line(header), "|" + "---|" * len(header)]
    return "\n".join(lines + [_line([cell(c) for c in row]) for row in rows])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def titled(one: Table) -> str:
    """A table under its title."""
    return f"**{one.title}**\n\n{table(one.header, one.rows)}"


def tests(found: Sequence[Test]) -> str:
    """The tests of a study, with their verdicts."""
    return table(("tested", "verdict", "evidence"), [(t.statement, _WORDS[t.passed], t.detail) for t in found])


def picture(file: str, text: str) -> str:
    """An image, with what it shows for readers who can't see it."""
    return f"![{text}]({file})"


def study(result: StudyResult, *, image: str | None = None, tables: Sequence[str] = ()) -> str:
    """A study as a section body: outcome, tests, picture, tables (all, or those whose title begins with one named)."""
    chosen = [t for t in result.tables if not tables or any(t.title.startswith(name) for name in tables)]
    laws = f" Law: {', '.join(f'`{c}`' for c in result.claims)}." if result.claims else ""
    parts = [
        f"Outcome: **{result.outcome}**.{laws} Again: `{result.command}` (seed {result.seed}).",
        tests(result.tests),
    ]
    if image:
        parts.append(picture(image, result.title))
    return "\n\n".join([*parts, *(titled(t) for t in chosen), *result.notes])
