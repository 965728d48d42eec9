"""`attnproof check TARGET`: judge an implementation of attention.

Exit codes: 0 it agrees; 1 it differs, is suspicious, or was not judged; 2 usage; 3 something it needs is not
installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from verify.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `attnproof check`."""
    parser.add_argument(
        "target", nargs="?", help="FILE.py:FUNCTION, MODULE:FUNCTION, MODEL.onnx, or a known name as torch.sdpa"
    )
    parser.add_argument("--like", choices=("numpy", "torch", "jax", "cupy"), help="array library of the target")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--compile", action="store_true", help="judge torch.compile of the target")
    parser.add_argument("--layout", default="bhnd", choices=("bhnd", "bnhd", "thd", "nd"), help="axes of q, k, v")
    parser.add_argument("--arg", action="append", default=[], metavar="FEATURE=NAME", help="the target's own name")
    parser.add_argument(
        "--spec", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="what is declared of the target"
    )
    parser.add_argument("--dtype", default=None, help="float64, float32, float16, bfloat16, or several with commas")
    parser.add_argument("--algorithm", default=None, help="as flash:block=128,weights=fp16,accumulate=fp32")
    parser.add_argument("--grad", action="store_true", help="judge gradients too")
    parser.add_argument(
        "--backward", default=None, metavar="FUNCTION",
        help="gives gradients, beside the target: (dq, dk, dv), then dbias and dsink where those are given",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="fewer and smaller inputs: under 3 s")
    parser.add_argument("--budget", type=float, default=None, metavar="SECONDS")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for one call (60)")
    parser.add_argument("--memory", type=float, default=8.0, metavar="GIB", help="for the target's process (8)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON ('-' for standard output)")
    parser.add_argument("--junit-xml", metavar="FILE", help="write the result as a JUnit page")


def run(args: argparse.Namespace) -> int:
    """Judge, print, and return the exit code."""
    import sys

    from verify import jsonout
    from verify.checking.api import check

    if not args.timeout > 0 or (args.budget is not None and not args.budget > 0):
        raise UsageError("--timeout and --budget: expected seconds above 0")
    if not 0 < args.memory < float("inf"):
        raise UsageError(f"--memory {args.memory:g}: expected GiB above 0")
    target, words = _target(args.target, [word for text in args.spec for word in text.split()])
    result = check(
        target,
        spec=words or None,
        dtype=args.dtype.split(",") if args.dtype else None,
        like=args.like,
        layout=args.layout,
        device=args.device,
        arg=_pairs(args.arg),
        backward=args.backward,
        algorithm=args.algorithm,
        grad=args.grad,
        quick=args.quick,
        budget=args.budget,
        seed=args.seed,
        timeout=args.timeout,
        memory=int(args.memory * 2**30),
        compile=args.compile,
        progress=lambda text: print(f"{text} ...", file=sys.stderr, flush=True),
    )
    if args.json != "-":
        print(result.text())
    if args.json:
        jsonout.emit(jsonout.document("check-1", result.to_json()), args.json)
    if args.junit_xml:
        jsonout.write_whole(Path(args.junit_xml), result.to_junit())
    return result.exit_code


def _target(target: str | None, words: list[str]) -> tuple[str, list[str]]:
    """(target, words of --spec): a target written after --spec's words is told from them by having no "="."""
    stray = [word for word in words if "=" not in word]
    if target is None and len(stray) == 1:
        return stray[0], [word for word in words if word != stray[0]]
    if target is None:
        raise UsageError("no target: expected FILE.py:FUNCTION, MODULE:FUNCTION, MODEL.onnx, or a known name")
    return target, words


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        feature, equals, own = word.partition("=")
        if not equals or not own:
            raise UsageError(f"--arg {word}: expected FEATURE=NAME, as mask=attn_mask")
        pairs[feature] = own
    return pairs
