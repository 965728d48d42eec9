"""`attnproof derive [CLAIM…]`: prove claims and print their derivations.

Guarantees: exit code 0 when every claim asked for is Proved, else 1 (ExactAtSizes, Numeric, Assumed and Unknown are not
proofs), 130 when interrupted, with what was done printed; what is printed is what was checked. `--list` proves nothing.
`--format latex` is a document that needs amsmath alone (Japanese: LuaLaTeX). Progress is shown on a terminal only.
Does not: prove anything itself (see `derive`).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from verify import errors

if TYPE_CHECKING:
    from derive.catalogue import Claim
    from derive.verdict import Verdict
    from verify.reporting.words import Language

FORMATS = ("text", "latex", "markdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="ids as softmax.jacobian, or families as softmax")
    parser.add_argument("--list", action="store_true", help="list the claims and stop")
    parser.add_argument("--format", choices=FORMATS, default="text", help="how derivations are printed (text)")
    parser.add_argument("--lang", choices=("en", "ja"), default="en", help="language of the words (en)")
    parser.add_argument("--cite", action="store_true", help="print BibTeX of the sources used and stop")
    parser.add_argument("--json", metavar="FILE", help="write verdicts and steps as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    chosen = choose(args.claims)
    if args.cite:
        print("\n\n".join(citations(chosen)))
        return errors.AGREES
    if args.list:
        return _list(chosen, args.json, args.lang)
    return _prove(chosen, args.format, args.lang, args.json)


def choose(names: list[str]) -> list[Claim]:
    """The claims of ids and family names, in the order asked; all of them for no name."""
    import derive

    if not names:
        return derive.claims()
    found: dict[str, Claim] = {}
    for name in names:
        group = derive.claims(name) if name in derive.family_names() else [derive.claim(name)]
        found |= {one.id: one for one in group}
    return list(found.values())


def citations(claims: list[Claim]) -> list[str]:
    """BibTeX of the sources of these claims, each once, by key."""
    return [text for _, text in sorted({c.source.key: c.source.bibtex() for c in claims}.items())]


def _list(claims: list[Claim], where: str | None, language: Language) -> int:
    from verify.console import table
    from verify.jsonout import document, emit
    from verify.reporting.words import say

    if where:
        body = {"claims": [{"id": c.id, "title": dict(c.title), "verdict": None} for c in claims]}
        emit(document("derive-1", body), where)
    if where != "-":
        header = (say("claim", language), say("what it says", language))
        table(say("{} claims", language, len(claims)), header, [(c.id, c.title[language]) for c in claims])
    return errors.AGREES


def _prove(claims: list[Claim], form: str, language: Language, where: str | None) -> int:
    from verify.jsonout import document, emit
    from verify.reporting.derivations import record
    from verify.reporting.words import say

    proved, whole = _verdicts(claims, quiet=where == "-")
    if where:
        emit(document("derive-1", {"claims": [record(*one) for one in proved]}), where)
    if where != "-" and proved:
        print(_shown(proved, form, language))
    if not whole:
        print(f"attnproof: {say('interrupted: {} of {} claims were done', language, len(proved), len(claims))}",
              file=sys.stderr)  # fmt: skip
        return errors.INTERRUPTED
    return errors.AGREES if all(v.is_proved for _, v in proved) else errors.DIFFERS


def _verdicts(claims: list[Claim], *, quiet: bool) -> tuple[list[tuple[Claim, Verdict]], bool]:
    """The verdicts, and whether they are all: Ctrl-C keeps those that are done. Progress is for a terminal alone."""
    from verify.console import stage

    proved: list[tuple[Claim, Verdict]] = []
    try:
        with stage("proving", total=len(claims), quiet=quiet or not sys.stderr.isatty()) as bar:
            for number, one in enumerate(claims, 1):
                bar.say(f"{number} of {len(claims)}: {one.id}")
                proved.append((one, one.prove()))
                bar.advance()
    except KeyboardInterrupt:
        return proved, False
    return proved, True


def _shown(proved: list[tuple[Claim, Verdict]], form: str, language: Language) -> str:
    from verify.reporting.derivations import markdown
    from verify.reporting.plain import plain_text
    from verify.reporting.tex import latex_document

    if form == "latex":
        return latex_document(proved, language)
    show = plain_text if form == "text" else markdown
    return "\n\n".join(show(claim, verdict, language) for claim, verdict in proved)
