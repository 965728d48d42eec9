"""`attnproof doctor`: what this machine has, and what is missing, with the line that brings it.

Guarantees: looks and does not change anything; a missing extra is no failure (exit code 0), a required package that
is missing or one of our three packages overwritten by another distribution is (exit code 3 or 1).
Does not: load a GPU library unless it is installed.
"""

from __future__ import annotations

import argparse
from typing import Any

from verify import errors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write what was found as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    from verify.console import table
    from verify.diagnosis import diagnose
    from verify.jsonout import document, emit

    found: dict[str, Any] = diagnose()
    if args.json:
        emit(document("doctor-1", found), args.json)
    if args.json != "-":
        table("This machine", ("what", "found"), list(found["machine"].items()))
        table("Packages", ("package", "version", "needed for"), [_row(p) for p in found["packages"]])
        gpu = found["gpu"]
        print(f"GPU: {gpu['text']}")
        for problem in found["problems"]:
            print(f"problem: {problem['text']}")
    if any(p["kind"] == "overwritten" for p in found["problems"]):
        return errors.DIFFERS
    return errors.NOT_INSTALLED if found["problems"] else errors.AGREES


def _row(package: dict[str, Any]) -> tuple[str, str, str]:
    missing = f"missing: {package['install']}" if package["version"] is None else package["version"]
    return package["name"], missing, package["use"]
