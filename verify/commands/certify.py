"""`attnproof certify FILE.npz`: print a certificate for arrays in a file, and judge a kernel's result by it.

Guarantees: exit code 0 when something was certified and the file's `result`, if any, may come from the declared
algorithm; 1 when the result is proved outside its tolerance or the target was missed.
Does not: run a kernel; put its output into the file as `result`.
"""

from __future__ import annotations

import argparse
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verify import errors
from verify.errors import UsageError

if TYPE_CHECKING:
    from compute.bounds import Tolerance
    from compute.certificate import Certificate

ARRAYS = ("q", "k", "v", "mask", "bias", "sink", "alibi_slopes", "key_lengths", "grad_output", "result")
LARGEST = 8 * 2**30  # bytes of unpacked arrays


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE.npz", help=f"arrays by name: {', '.join(ARRAYS)}; q, k, v are needed"
    )
    parser.add_argument(
        "--example", choices=("cancel",), help="instead of a file: values that cancel (the classroom case)"
    )
    parser.add_argument(
        "--tier", choices=("auto", "norm", "abs", "tight", "arb"), default="auto", help="how far to go (auto)"
    )
    parser.add_argument(
        "--target", metavar="T", help="f32, f64, or a relative radius as 1e-12: auto climbs until it is met"
    )
    parser.add_argument("--causal", choices=("none", "top-left", "bottom-right"), default="none")
    parser.add_argument("--scale", type=float, help="of q·k; default 1/sqrt(d_k), the real number")
    parser.add_argument("--softcap", type=float)
    parser.add_argument("--empty-row", choices=("zero", "mean", "nan", "error"), default="zero")
    parser.add_argument("--exp", choices=("library", "table"), default="library", help="table: trust no library's exp")
    parser.add_argument(
        "--algorithm", metavar="A", help="of `result`, as flash:block=64,weights=fp16 (default: by its dtype)"
    )
    parser.add_argument("--svg", metavar="FILE", help="write the picture: proven value, tolerance, results")
    parser.add_argument("--json", metavar="FILE", help="write the certificate as JSON; - for standard output")


def run(args: argparse.Namespace) -> int:
    from compute.certificate import certify
    from compute.spec import Spec
    from verify.jsonout import document, emit

    if args.example and args.file:
        raise UsageError(f"both {args.file} and --example {args.example} given: expected one of them")
    arrays = example() if args.example else _load(args.file)
    result = arrays.pop("result", None)
    for option in ("svg", "algorithm"):
        if result is None and getattr(args, option):
            raise UsageError(f"--{option} is about a kernel's result: put its output into the file as `result`")
    spec = Spec(scale=args.scale, causal=args.causal, softcap=args.softcap, empty_row=args.empty_row)
    certificate = certify(**arrays, spec=spec, tier=args.tier, target=_target(args.target), exp=args.exp)
    quiet = args.json == "-"
    if not quiet:
        print(certificate.text())
    body: dict[str, Any] = {"certificate": certificate.to_json()}
    missed = certificate.undecided + certificate.undecided_gradients
    code = errors.DIFFERS if missed else errors.AGREES
    if result is not None:
        verdict, lines = _judge(arrays, spec, certificate, result, args)
        body["result"] = verdict
        code = errors.DIFFERS if verdict["outside"] else code
        if not quiet:
            print("\n" + "\n".join(lines))
    if args.json:
        emit(document("certify-1", body), args.json)
    return code


def _target(text: str | None) -> Any:
    if text is None or text in ("f32", "f64", "float32", "float64", "fp32", "fp64"):
        return text
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--target {text}: expected f32, f64, or a number as 1e-12") from None


def _load(name: str | None) -> dict[str, Any]:
    import numpy as np

    if name is None:
        raise UsageError(
            "no FILE.npz given: expected one made by numpy.savez(FILE, q=q, k=k, v=v), or --example cancel"
        )
    if Path(name).exists() and not zipfile.is_zipfile(name):
        raise UsageError(f"{name} is no .npz file: expected one made by numpy.savez(FILE, q=q, k=k, v=v)")
    try:
        with zipfile.ZipFile(name) as archive:
            whole = sum(part.file_size for part in archive.infolist())
        if whole > LARGEST:
            raise UsageError(f"{name} unpacks to {whole / 2**30:.0f} GiB: expected at most {LARGEST / 2**30:.0f} GiB")
        with np.load(name, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"cannot read {name} as .npz without pickled objects: {error}") from error
    missing, unknown = {"q", "k", "v"} - set(arrays), set(arrays) - set(ARRAYS)
    if missing or unknown:
        said = f"lacks {', '.join(sorted(missing))}" if missing else f"holds {', '.join(sorted(unknown))}"
        raise UsageError(f"{name} {said}: expected q, k, v and any of {', '.join(ARRAYS[3:])}")
    return arrays


def example() -> dict[str, Any]:
    """The classroom case: values of size 1e6 that cancel in pairs of almost equal keys, and float32's result."""
    import numpy as np

    rng = np.random.default_rng(7)
    n, half, d = 8, 32, 16
    q, k = (0.15 * rng.standard_normal((n, d))).astype(np.float32), rng.standard_normal((half, d)).astype(np.float32)
    v = (rng.standard_normal((half, 4)) * 1e6).astype(np.float32)
    k, v = np.vstack([k, k * np.float32(1 + 2.0**-22)]), np.vstack([v, -v])
    s = (q @ k.T) * np.float32(1 / np.sqrt(d))
    w = np.exp(s - s.max(axis=1, keepdims=True))
    result = (w / w.sum(axis=1, keepdims=True)) @ v
    return {"q": q, "k": k, "v": v, "result": result}


def _judge(
    arrays: dict[str, Any], spec: Any, certificate: Certificate, result: Any, args: argparse.Namespace
) -> tuple[dict[str, Any], list[str]]:
    import numpy as np

    from compute.bounds import tolerance
    from verify.checking.allowance import parse_algorithm
    from verify.circles import three_circles
    from verify.jsonout import write_whole

    out = certificate.output
    if tuple(result.shape) != out.shape:
        raise UsageError(f"result has shape {result.shape}: expected the output's, {out.shape}")
    judge = parse_algorithm(args.algorithm, result.dtype.name)
    given = {key: x for key, x in arrays.items() if key not in ("q", "k", "v", "grad_output")}
    found: list[Tolerance] = [
        tolerance(arrays["q"], arrays["k"], arrays["v"], spec, algorithm, **given) for algorithm in judge.algorithms
    ]
    got = result.astype(np.float64)
    fine = np.logical_or.reduce([t.allows(got, out.mid, out.rad) for t in found])
    loosest = max(found, key=lambda t: float(np.where(np.isfinite(t.total), t.total, 0).sum()))
    gap = np.abs(got - out.mid)
    largest = float(np.abs(out.mid).max(initial=0.0))
    worst = np.unravel_index(int(np.argmax(np.where(np.isfinite(gap), gap, np.inf))), gap.shape) if gap.size else ()
    error, radius, allowed = (float(x[worst]) if gap.size else 0.0 for x in (gap, out.rad, loosest.total))
    verdict = {
        "outside": int((~fine).sum()),
        "entries": int(fine.size),
        "worst": {"index": [int(i) for i in worst], "error": error, "radius": radius, "tolerance": allowed},
        "error_over_largest": error / largest if largest else 0.0,
        "algorithm": judge.text,
        "dominant": loosest.dominant(),
    }
    lines = [
        f"result: {verdict['outside']} of {verdict['entries']} entries are proved outside the tolerance",
        f"  largest error {error:.3g} at {tuple(int(i) for i in worst)}: {error / (largest or 1.0):.3g} × the largest "
        "output",
        f"  proven radius there {radius:.2g}, tolerance {allowed:.3g} (mostly {verdict['dominant']}); {judge.text}",
    ]
    if args.svg:
        notes = [lines[0], f"largest error {error:.3g}, {verdict['error_over_largest']:.3g} × the largest output"]
        picture = three_circles(gap, out.rad, loosest.total, largest or 1.0, "Proven value, tolerance, results", notes)
        write_whole(Path(args.svg), picture)
        lines.append(f"  picture: {args.svg}")
    return verdict, lines
