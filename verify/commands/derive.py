"""`attnproof derive [CLAIM…]`: prove claims and print their derivations.

Guarantees: exit code 0 when every claim asked for is Proved, else 1 (ExactAtSizes, Numeric, Assumed and Unknown are not
proofs); what is printed is what was checked. `--list` proves nothing.
Does not: prove anything itself (see `derive`).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from verify import errors

if TYPE_CHECKING:
    from derive.catalogue import Claim

FORMATS = ("text", "latex", "markdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="ids as softmax.jacobian, or families as softmax")
    parser.add_argument("--list", action="store_true", help="list the claims and stop")
    parser.add_argument("--format", choices=FORMATS, default="text", help="how derivations are printed (text)")
    parser.add_argument("--cite", action="store_true", help="print BibTeX of the sources used and stop")
    parser.add_argument("--json", metavar="FILE", help="write verdicts and steps as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    chosen = choose(args.claims)
    if args.cite:
        print("\n\n".join(citations(chosen)))
        return errors.AGREES
    if args.list:
        return _list(chosen, args.json)
    return _prove(chosen, args.format, args.json)


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


def _list(claims: list[Claim], where: str | None) -> int:
    from verify.console import table
    from verify.jsonout import document, emit

    if where:
        body = {"claims": [{"id": c.id, "title": dict(c.title), "verdict": None} for c in claims]}
        emit(document("derive-1", body), where)
    if where != "-":
        table(f"{len(claims)} claims", ("claim", "what it says"), [(c.id, c.title["en"]) for c in claims])
    return errors.AGREES


def _prove(claims: list[Claim], form: str, where: str | None) -> int:
    from verify.console import stage
    from verify.jsonout import document, emit
    from verify.reporting.derivations import latex_text, markdown, plain_text, record

    verdicts: list[Any] = []
    with stage("proving", total=len(claims), quiet=where == "-") as bar:
        for one in claims:
            bar.say(f"proving {one.id}")
            verdicts.append(one.prove())
            bar.advance()
    if where:
        emit(document("derive-1", {"claims": [record(c, v) for c, v in zip(claims, verdicts, strict=True)]}), where)
    if where != "-":
        show = {"text": plain_text, "markdown": markdown, "latex": latex_text}[form]
        print("\n\n".join(show(c, v) for c, v in zip(claims, verdicts, strict=True)))
    return errors.AGREES if all(v.is_proved for v in verdicts) else errors.DIFFERS
