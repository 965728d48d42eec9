"""The command line: `attnproof COMMAND ...`.

Guarantees: `--help` loads no library beyond the standard one; every command ends with one of the exit codes of
`verify.errors`; an error on purpose is one clear message, a traceback only with `--debug`.
Does not: do any work itself; each command is a module of `verify.commands` with `add_arguments(parser)` and
`run(args) -> int`, imported only when it is called.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from verify import errors

# command -> one line of help. The module is verify.commands.<command>.
COMMANDS = {
    "report": "the main job: prove, cross-check, run the scaling study, write reports/",
    "derive": "prove claims and print their derivations",
    "check": "judge an implementation of attention",
    "certify": "print a certificate for arrays in a file",
    "study": "run an experiment against its law",
    "bench": "measure speed and correctness on this machine or a GPU",
    "doctor": "show versions, BLAS, threads, GPU, and what is missing",
}


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attnproof",
        description="Know that attention is right: proofs, certified numbers, checks, experiments.",
        epilog="exit codes: 0 agrees or proved, 1 differs or not proved, 2 usage, 3 something is not installed, "
        "4 internal error, 130 interrupted",
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.add_argument("--debug", action="store_true", help="show a traceback with an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        if name == chosen:
            importlib.import_module(f"verify.commands.{name}").add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((w for w in words if w in COMMANDS), None)
    debug = "--debug" in words
    try:
        return _run(words, chosen)
    except KeyboardInterrupt:
        print("attnproof: interrupted", file=sys.stderr)
        return errors.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return errors.AGREES
    except Exception as error:
        if debug:
            raise
        code = exit_code(error)
        prefix = "internal error, please report it with --debug: " if code == errors.INTERNAL else ""
        kind = f"{type(error).__name__}: " if code == errors.INTERNAL else ""
        print(f"attnproof: {prefix}{kind}{error}", file=sys.stderr)
        return code


def _run(words: list[str], chosen: str | None) -> int:
    parser = _parser(chosen)
    args = parser.parse_args(words)
    if args.version:
        from importlib.metadata import version

        print(version("attnproof"))
        return errors.AGREES
    if args.command is None:
        parser.print_help()
        return errors.USAGE
    _check_common(args)
    return int(importlib.import_module(f"verify.commands.{args.command}").run(args))


def _check_common(args: argparse.Namespace) -> None:
    """Refuse what commands would only trip over later: a seed below 0, endless times, places that can't be written."""
    from pathlib import Path

    seed = getattr(args, "seed", None)
    if isinstance(seed, int) and seed < 0:
        raise errors.UsageError(f"--seed is {seed}: expected a whole number, at least 0")
    for option in ("timeout", "budget", "memory"):
        value = getattr(args, option, None)
        if value is not None and not 0 < value < float("inf"):
            raise errors.UsageError(f"--{option} is {value}: expected a finite number above 0")
    for option in ("json", "junit_xml", "svg", "plot"):
        where = getattr(args, option, None)
        if where is None or str(where) == "-":
            continue
        flag, path = f"--{option.replace('_', '-')}", Path(where)
        if path.is_dir():
            raise errors.UsageError(f"{flag} {where} is a folder: expected a file's name")
        if not path.parent.is_dir():
            raise errors.UsageError(f"{flag} {where}: folder {path.parent} does not exist; make it first")


def exit_code(error: Exception) -> int:
    """The exit code of an error: by its type, looked up by name so that nothing heavy is imported to ask."""
    if isinstance(error, (errors.UsageError, FileNotFoundError, IsADirectoryError, PermissionError)):
        return errors.USAGE
    if isinstance(error, errors.MissingError):
        return errors.NOT_INSTALLED
    names = {c.__name__ for c in type(error).__mro__ if c.__module__ in ("compute.errors", "derive.errors")}
    if names & {"NotInstalled", "DeviceError"}:
        return errors.NOT_INSTALLED
    if names & {"InputError", "StatementError", "UnknownClaim", "MomentError"}:
        return errors.USAGE
    if names & {"CheckersDisagree"}:
        return errors.INTERNAL
    if names & {"CanaryFailed"}:
        return errors.DIFFERS
    return errors.INTERNAL
