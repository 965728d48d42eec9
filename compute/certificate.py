"""`certify`: attention and its gradients with proven error radii, and a certificate that says what they rest on.

Guarantees: every Enclosure contains the exact real value of what the Spec means, under the printed assumptions; the
canaries of these assumptions have passed on this machine, or nothing is returned. `auto` climbs from Tier 1 over
Tier 2 to ball arithmetic and an exact rule for ties, row by row, only as far as `target` needs.
CuPy arrays are certified on their device, with the table exp, and give CuPy arrays.
Does not: take RoPE or dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from compute import canaries, device_arithmetic
from compute.arrays import Namespace, device_errors, namespace
from compute.climb import BALLS, EXP_ULP, Certified, Count, Target, Tier, certify_head, missed
from compute.enclosure import Enclosure, add_up
from compute.errors import InputError
from compute.heads import F64, Heads, exact64, split
from compute.meaning import same_library
from compute.outward import largest
from compute.spec import Spec

_LONG: dict[str, Target] = {"float32": "f32", "fp32": "f32", "float64": "f64", "fp64": "f64"}
_TIERS = ("auto", "norm", "abs", "tight", "arb")


@dataclass(frozen=True)
class Certificate:
    """Enclosures of one call; gradients are None unless grad_output was given (bias, sink: unless given too).

    output (…, h, n, d_v); lse (…, h, n) in the Spec's base; dq, dk, dv in the shapes of q, k, v; dbias, dsink in those
    of bias and sink; dscale a scalar. steps: what was computed by which tier. undecided: entries of the output that
    miss the target; undecided_gradients: of all gradients.
    """

    output: Enclosure
    lse: Enclosure
    dq: Enclosure | None
    dk: Enclosure | None
    dv: Enclosure | None
    dbias: Enclosure | None
    dscale: Enclosure | None
    dsink: Enclosure | None
    assumptions: tuple[str, ...]
    steps: tuple[str, ...]
    undecided: int
    target: Target
    versions: dict[str, str] = field(default_factory=dict)
    undecided_gradients: int = 0

    def __repr__(self) -> str:
        """One line; `text()` is the certificate for people."""
        widths = (f"{name} within {w['relative']:.2g}" for name, w in self.widths().items())
        missed = f"; {self.undecided + self.undecided_gradients} entries miss {self.target}" if self.target else ""
        return f"Certificate({', '.join(widths)} of the largest entry{missed})"

    def enclosures(self) -> dict[str, Enclosure]:
        """The enclosures that were asked for, by name."""
        names = ("output", "lse", "dq", "dk", "dv", "dbias", "dscale", "dsink")
        return {name: e for name in names if (e := getattr(self, name)) is not None}

    def widths(self) -> dict[str, dict[str, float]]:
        """Largest size, radius, and their quotient for each enclosure; NaN entries are left out."""
        out = {}
        for name, e in self.enclosures().items():
            xp, mid, rad_of = e.xp, e.xp.asarray(e.mid), e.xp.asarray(e.rad)
            size = float(largest(abs(xp.where(xp.isfinite(mid), mid, 0.0))))
            rad = float(largest(xp.where(xp.isfinite(mid), rad_of, 0.0)))
            out[name] = {
                "largest": size,
                "radius": rad,
                "relative": rad / size if size else (0.0 if not rad else math.inf),
            }
        return out

    def text(self) -> str:
        """The certificate for people."""
        lines = ["Certificate: the exact value lies within mid ± radius, entry by entry.", ""]
        lines.append(f"{'':10}{'shape':>20} {'largest':>11} {'radius':>11} {'radius/largest':>15}")
        for name, w in self.widths().items():
            shape = "×".join(map(str, self.enclosures()[name].shape)) or "scalar"
            lines.append(f"{name:10}{shape:>20} {w['largest']:11.4g} {w['radius']:11.3g} {w['relative']:15.3g}")
        if self.target is not None:
            what = {"f32": "correctly rounded to float32", "f64": "correctly rounded to float64"}
            goal = what.get(
                str(self.target), f"radius ≤ {self.target:g} of the largest" if isinstance(self.target, float) else ""
            )
            graded = "" if self.dq is None else f"; of the gradients: {self.undecided_gradients}"
            lines += ["", f"target: {goal}; entries of the output that miss it: {self.undecided}{graded}"]
        lines += ["", "computed by:", *(f"  {s}" for s in self.steps)]
        lines += ["", "assuming:", *(f"  {a}" for a in self.assumptions)]
        lines += ["", "on: " + ", ".join(f"{k} {v}" for k, v in self.versions.items())]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data (no arrays)."""
        return {
            "widths": self.widths(),
            "shapes": {name: list(e.shape) for name, e in self.enclosures().items()},
            "target": self.target,
            "undecided": self.undecided,
            "undecided_gradients": self.undecided_gradients,
            "steps": list(self.steps),
            "assumptions": list(self.assumptions),
            "versions": dict(self.versions),
        }


def certify(
    q: Any,
    k: Any,
    v: Any,
    spec: Spec | None = None,
    *,
    mask: Any = None,
    bias: Any = None,
    sink: Any = None,
    alibi_slopes: Any = None,
    key_lengths: Any = None,
    grad_output: Any = None,
    tier: Tier = "auto",
    target: Target = None,
    exp: Literal["library", "table"] = "library",
) -> Certificate:
    """Attention with proven error radii, on NumPy arrays or, on their device, CuPy arrays.

    q (…, h, n, d_k), k (…, h_kv, m, d_k), v (…, h_kv, m, d_v), or 2-D; float64 down to float8, taken as exact numbers;
    mask, bias, sink, alibi_slopes, key_lengths as in compute.attention. grad_output, of the output's shape: enclose the
    gradients of Σ grad_output·output too. tier: "norm" and "abs" (Tier 1, about the cost of plain NumPy), "tight"
    (Tier 2, about 1e-18), "arb" (balls), "auto". target: "f32" or "f64" (every entry correctly rounded), or a
    radius relative to the head's largest output, or largest entry of a gradient; "auto" climbs until it is met.
    exp: "table" trusts no library's exp, which is what CuPy arrays always get (CUDA states no bound of its own).
    Source: compute/enclosure.md; Rump 2010 (Verification methods), Jeannerod and Rump 2013 for the sums.

    Raises InputError for a call that means nothing or has non-finite values that take part, CanaryFailed where this
    machine's arithmetic isn't what a certificate assumes (on a device also where cuBLAS emulates float64), DeviceError
    out of its memory, NotInstalled for "arb" without python-flint.

    >>> import numpy as np
    >>> q = k = v = np.eye(3)
    >>> c = certify(q, k, v, target="f32")
    >>> value, undecided = c.output.rounded("float32")
    >>> int(undecided.sum()), bool(c.output.rad.max() < 1e-14)
    (0, True)
    """
    target = _LONG.get(target, target) if isinstance(target, str) else target
    _check(spec, tier, target, exp)
    xp = namespace(q=q, k=k, v=v)
    with device_errors(xp, "certify fewer queries a call (rows stand alone; dk and dv add up), or on the host"):
        arrays = {"mask": mask, "bias": bias, "sink": sink, "alibi_slopes": alibi_slopes, "key_lengths": key_lengths}
        heads = split(q, k, v, spec, **arrays)
        grad = _gradient_of(grad_output, heads)
        if xp is np:
            canaries.ensure(EXP_ULP)
        else:
            device_arithmetic.ensure(xp, EXP_ULP)
        count = Count()
        parts = [
            certify_head(head, None if grad is None else grad[i], tier, target, exp, bias is not None, count)
            for i, head in enumerate(heads)
        ]
        return _assemble(heads, parts, grad is not None, bias, sink, tier, target, exp, count)


def _check(spec: Any, tier: Any, target: Any, exp: Any) -> None:
    if spec is not None and not isinstance(spec, Spec):
        raise InputError(
            f"spec is a {type(spec).__name__}: expected a compute.Spec, as Spec(causal='top-left'), or None"
        )
    if not isinstance(tier, str) or tier not in _TIERS:
        raise InputError(f"tier is {tier!r}: expected one of {', '.join(_TIERS)}")
    if not isinstance(exp, str) or exp not in ("library", "table"):
        raise InputError(f"exp is {exp!r}: expected 'library' or 'table'")
    known = target is None or (isinstance(target, str) and target in ("f32", "f64"))
    if not known and not (isinstance(target, float) and 0 < target < 1):
        raise InputError(f"target is {target!r}: expected 'f32', 'f64', or a relative radius between 0 and 1")


def _gradient_of(grad_output: Any, heads: Heads) -> F64 | None:
    if grad_output is None:
        return None
    shape = (*heads.shape, heads.problem.n, heads.problem.v.shape[-1])
    got = tuple(getattr(grad_output, "shape", None) or np.shape(grad_output))
    if got != shape:
        raise InputError(f"grad_output has shape {got}: expected the output's, {shape}")
    xp = heads.problem.xp
    if xp is not np:
        same_library(xp, "grad_output", grad_output)
    grad = exact64(np.asarray(grad_output) if xp is np else grad_output, "grad_output")
    if not xp.isfinite(grad).all():
        raise InputError("grad_output has NaN or infinite values: expected finite numbers")
    return grad.reshape(len(heads), *shape[-2:])


def _assemble(
    heads: Heads,
    parts: list[Certified],
    graded: bool,
    bias: Any,
    sink: Any,
    tier: Tier,
    target: Target,
    exp: str,
    count: Count,
) -> Certificate:
    problem = heads.problem
    n, m, d, d_v = problem.n, problem.m, problem.q.shape[-1], problem.v.shape[-1]

    def joined(pick: Callable[[Certified], Enclosure], axes: tuple[int, ...]) -> Enclosure:
        got = [pick(p) for p in parts]
        lows = [problem.xp.zeros(e.mid.shape) if e.low is None else e.low for e in got]
        low = heads.join(lows, axes) if any(e.low is not None for e in got) else None
        return Enclosure(heads.join([e.mid for e in got], axes), heads.join([e.rad for e in got], axes), low)

    found: dict[str, Enclosure | None] = dict.fromkeys(("dq", "dk", "dv", "dbias", "dscale", "dsink"))
    if graded:
        found["dq"] = joined(lambda p: p.gradients["dq"], (n, d))
        for name, width in (("dk", d), ("dv", d_v)):
            found[name] = _over_groups(joined(lambda p, name=name: p.gradients[name], (m, width)), heads)  # type: ignore[misc]
        scale = joined(lambda p: p.gradients["dscale"], ())
        found["dscale"] = scale.reshape(-1)[0] if len(parts) == 1 else add_up(scale.reshape(-1), 0)
        if bias is not None:
            found["dbias"] = _to_shape(joined(lambda p: p.gradients["dbias"], (n, m)), tuple(bias.shape))
        if sink is not None:
            zero = Enclosure(problem.xp.asarray(0.0), problem.xp.asarray(0.0))
            shape = tuple(getattr(sink, "shape", ()))
            found["dsink"] = _to_shape(joined(lambda p: p.gradients.get("dsink", zero), ()), shape)
    return Certificate(
        output=joined(lambda p: p.z, (n, d_v)),
        lse=joined(lambda p: p.lse, (n,)),
        **found,
        assumptions=_assumptions(heads, tier, exp, count),
        steps=_steps(count, graded),
        undecided=sum(p.missed for p in parts),
        target=target,
        versions=_versions(problem.xp),
        undecided_gradients=sum(missed(e, target) for e in found.values() if e is not None),
    )


def _over_groups(e: Enclosure, heads: Heads) -> Enclosure:
    """Sum what the query heads of a group give to their key-value head."""
    groups = heads.problem.groups
    if heads.problem.flat or groups == 1:
        return e
    *batch, h, m, width = e.shape
    return add_up(e.reshape(*batch, h // groups, groups, m, width), -3)


def _to_shape(e: Enclosure, shape: tuple[int, ...]) -> Enclosure:
    """Sum an enclosure over the axes along which an argument was broadcast."""
    extra = len(e.shape) - len(shape)
    if extra > 0:
        e = add_up(e, tuple(range(extra)))
    elif extra < 0:
        e = e.reshape(*([1] * -extra), *e.shape)
    axes = tuple(a for a, (have, want) in enumerate(zip(e.shape, shape, strict=True)) if want == 1 and have != 1)
    return add_up(e, axes).reshape(*shape) if axes else e.reshape(*shape)


def _steps(count: Count, graded: bool) -> tuple[str, ...]:
    steps = [f"Tier 1 (float64 products with bounds): {count.norm} rows"] if count.norm else []
    if count.tight:
        steps.append(f"Tier 2 (split products, table exp): {count.tight} rows")
    steps += [f"Tier 2 refused rows: {why}" for why in sorted(count.refused)]
    if count.balls:
        steps.append(f"ball arithmetic (python-flint): {count.balls} rows")
    if count.ties:
        steps.append(f"exactly equal scores, rational value: {count.ties} entries")
    if graded:
        steps.append(f"gradients: {count.gradients or 'Tier 1'}")
    return tuple(steps)


def _assumptions(heads: Heads, tier: Tier, exp: str, count: Count) -> tuple[str, ...]:
    spec = heads.problem.spec
    d = heads.problem.q.shape[-1]
    scale = f"1/√{d}, the real number" if spec.scale is None else f"{spec.scale!r}, exactly"
    proved = exp == "table" or heads.problem.xp is not np
    source = "the table exp of this package, proved" if proved else "NumPy's own tests state 1 ulp for float64"
    first = [
        f"A1  exp on float64 is within {EXP_ULP:g} ulp ({2 * EXP_ULP:g}·2⁻⁵³ relative, 2⁻¹⁰²² absolute), exp(0) = 1: "
        f"{source}; sampled"
    ]
    out = [
        *(first if count.norm else []),  # Tier 2 alone trusts no library's exp
        "A2  float64 arithmetic is IEEE 754, rounded to nearest, with gradual underflow in every thread: tested by "
        "canaries",
        "A3  matrix products are sums of products in some order, fused or not: canaries see float32, TF32 and "
        "fixed-point emulation; a product of Strassen's kind would not be seen",
        f"A4  the inputs are the exact numbers of the arrays; the scale is {scale}",
    ]
    if heads.problem.xp is not np:
        seen = (
            "environment, handle"
            if device_arithmetic.math_mode() is not None
            else "environment; its handle is not seen"
        )
        out[-2] += f"; cuBLAS is not asked to emulate float64 ({seen})"
    if tier == "arb" or count.balls or count.gradients == BALLS:
        out.append("A5  ball arithmetic of Arb (python-flint) is right")
    return tuple(out)


def _versions(xp: Namespace) -> dict[str, str]:
    from compute.threads import blas_kernel

    if xp is not np:
        return device_arithmetic.versions(xp) | {"NumPy": np.__version__} | _installed()
    out = {"NumPy": np.__version__, "BLAS kernels": blas_kernel(), "BLAS threads": str(canaries.blas_threads())}
    return out | _installed()


@cache
def _installed() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    out = {}
    for name in ("attnproof", "python-flint"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out
