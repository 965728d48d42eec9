"""`attnproof bench`: the device check, on a GPU or in the emulator.

Exit codes: 0 everything checked is right, 1 something differs, 3 no device or a package is missing.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from verify import errors, jsonout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", choices=("cuda", "emulator"), default="cuda", help="where the kernels run (default: cuda)"
    )
    parser.add_argument("--tiny", action="store_true", help="smallest sizes: exercises every section in seconds")
    parser.add_argument("--budget", type=float, default=450.0, metavar="SECONDS", help="start no section after this")
    parser.add_argument(
        "--json", metavar="FILE", help="write the record, anew after every section (- for stdout at the end)"
    )
    parser.add_argument("--only", action="append", metavar="SECTION", help="run only this section (repeatable)")


def run(args: argparse.Namespace) -> int:
    from compute.errors import DeviceError, NotInstalled
    from verify.device.machine import Machine
    from verify.device.record import Record
    from verify.device.sections import SECTIONS

    names = [name for name, _, _ in SECTIONS]
    unknown = sorted(set(args.only or ()) - set(names))
    if unknown:
        raise errors.UsageError(f"no section {', '.join(unknown)}; sections are {', '.join(names)}")
    try:
        machine = Machine(args.device)
    except (DeviceError, NotInstalled) as error:
        hint = "" if args.device == "emulator" else "; --device emulator --tiny runs the same without a GPU"
        raise type(error)(f"{error}{hint}") from error
    record = Record(
        args.device, args.tiny, args.budget, args.json, lambda text: print(text, file=sys.stderr, flush=True)
    )
    record.facts = machine.facts()
    for name, work, need in SECTIONS:
        if args.only and name not in args.only:
            continue
        record.section(name, partial(work, machine, record), 0.0 if args.tiny else need)
        machine.free()
    if args.json == "-":
        jsonout.emit(record.document(), "-")
    checked = [row for row in record.rows if "ok" in row]
    right = sum(row["ok"] for row in checked)
    passed = f"{right} of {len(checked)} checks passed" if checked else "these sections check nothing"
    summary = f"{passed}, {len(record.failed)} failures"
    print(f"{summary}, {sum(record.seconds.values()):.1f} s", file=sys.stderr if args.json == "-" else sys.stdout)
    for failure in record.failed:
        print(f"failed: {failure}", file=sys.stderr)
    if not args.tiny and machine.cuda is False:
        print("The emulator's times say nothing about a GPU.", file=sys.stderr)
    measured_only = bool(args.only) and bool(record.rows)
    return errors.DIFFERS if record.failed or not (checked or measured_only) else errors.AGREES
