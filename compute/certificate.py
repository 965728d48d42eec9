"""`certify`: attention and its gradients with proven error radii, and a certificate that says what they rest on.

Guarantees: every Enclosure contains the exact real value of what the Spec means, under the printed assumptions; the
canaries of these assumptions have passed on this machine, or nothing is returned. `auto` climbs from Tier 1 over
Tier 2 to ball arithmetic and an exact rule for ties, row by row, only as far as `target` needs.
Does not: take CuPy arrays, RoPE or dropout; refine gradients beyond Tier 1 except in small cases (ball arithmetic).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from compute import arb, canaries, ties
from compute.enclosure import Enclosure, add_up
from compute.errors import InputError
from compute.heads import F64, Head, Heads, Mask, exact64, split
from compute.spec import Spec
from compute.table_exp import exp64
from compute.tier1 import Forward, Settings, forward
from compute.tier1_backward import backward
from compute.tier2 import tight

Tier = Literal["auto", "norm", "abs", "tight", "arb"]
Target = Literal["f32", "f64"] | float | None
EXP_ULP = 1.0
_TIERS = ("auto", "norm", "abs", "tight", "arb")
SMALL = 1 << 14  # scores of a head up to which ball arithmetic may take over the gradients


@dataclass(frozen=True)
class Certificate:
    """Enclosures of one call; gradients are None unless grad_output was given (bias, sink: unless given too).

    output (…, h, n, d_v); lse (…, h, n) in the Spec's base; dq, dk, dv in the shapes of q, k, v; dbias, dsink in those
    of bias and sink; dscale a scalar. steps: what was computed by which tier. undecided: entries that miss the target.
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

    def enclosures(self) -> dict[str, Enclosure]:
        """The enclosures that were asked for, by name."""
        names = ("output", "lse", "dq", "dk", "dv", "dbias", "dscale", "dsink")
        return {name: e for name in names if (e := getattr(self, name)) is not None}

    def widths(self) -> dict[str, dict[str, float]]:
        """Largest size, radius, and their quotient for each enclosure; NaN entries are left out."""
        out = {}
        for name, e in self.enclosures().items():
            finite = np.isfinite(e.mid)
            size = float(np.abs(e.mid[finite]).max(initial=0.0))
            rad = float(np.asarray(e.rad)[finite].max(initial=0.0))
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
            lines += ["", f"target: {goal}; entries of the output that miss it: {self.undecided}"]
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
            "steps": list(self.steps),
            "assumptions": list(self.assumptions),
            "versions": dict(self.versions),
        }


@dataclass
class _Count:
    """Rows and entries that each tier decided."""

    norm: int = 0
    refined: int = 0
    tight: int = 0
    balls: int = 0
    ties: int = 0
    gradients: str = ""
    refused: set[str] = field(default_factory=set)


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
    """Attention with proven error radii.

    q (…, h, n, d_k), k (…, h_kv, m, d_k), v (…, h_kv, m, d_v), or 2-D; float64 down to float8, taken as exact numbers;
    mask, bias, sink, alibi_slopes, key_lengths as in compute.attention. grad_output, of the output's shape: enclose the
    gradients of Σ grad_output·output too. tier: "norm" and "abs" (Tier 1, about the cost of plain NumPy), "tight"
    (Tier 2, about 1e-18), "arb" (balls), "auto". target: "f32" or "f64" (every entry correctly rounded), or a
    radius relative to the head's largest output; "auto" climbs until it is met. exp: "table" trusts no library's exp.
    Source: compute/enclosure.md; Rump 2010 (Verification methods), Jeannerod and Rump 2013 for the sums.

    Raises InputError for a call that means nothing or has non-finite values that take part, CanaryFailed where this
    machine's arithmetic isn't what a certificate assumes, NotInstalled for "arb" without python-flint.

    >>> import numpy as np
    >>> q = k = v = np.eye(3)
    >>> c = certify(q, k, v, target="f32")
    >>> value, undecided = c.output.rounded("float32")
    >>> int(undecided.sum()), bool(c.output.rad.max() < 1e-14)
    (0, True)
    """
    _check(tier, target, exp)
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not isinstance(array, np.ndarray):
            kind = f"{type(array).__module__}.{type(array).__qualname__}"
            mend = f"cupy.asnumpy({name})" if kind.startswith("cupy") else f"numpy.asarray({name})"
            raise InputError(f"{name} is a {kind}: certificates are made on the host, from NumPy arrays, as {mend}")
    heads = split(q, k, v, spec, mask=mask, bias=bias, sink=sink, alibi_slopes=alibi_slopes, key_lengths=key_lengths)
    grad = _gradient_of(grad_output, heads)
    canaries.ensure(EXP_ULP)
    count = _Count()
    parts = [
        _one(head, None if grad is None else grad[i], tier, target, exp, bias is not None, count)
        for i, head in enumerate(heads)
    ]
    return _assemble(heads, parts, grad is not None, bias, sink, tier, target, exp, count)


def _check(tier: str, target: Any, exp: str) -> None:
    if tier not in _TIERS:
        raise InputError(f"tier is {tier!r}: expected one of {', '.join(_TIERS)}")
    if exp not in ("library", "table"):
        raise InputError(f"exp is {exp!r}: expected 'library' or 'table'")
    known = target is None or target in ("f32", "f64")
    if not known and not (isinstance(target, float) and 0 < target < 1):
        raise InputError(f"target is {target!r}: expected 'f32', 'f64', or a relative radius between 0 and 1")


def _gradient_of(grad_output: Any, heads: Heads) -> F64 | None:
    if grad_output is None:
        return None
    shape = (*heads.shape, heads.problem.n, heads.problem.v.shape[-1])
    if tuple(np.shape(grad_output)) != shape:
        raise InputError(f"grad_output has shape {np.shape(grad_output)}: expected the output's, {shape}")
    grad = exact64(np.asarray(grad_output), "grad_output")
    if not np.isfinite(grad).all():
        raise InputError("grad_output has NaN or infinite values: expected finite numbers")
    return np.asarray(grad.reshape(len(heads), *shape[-2:]))


@dataclass
class _Part:
    z: Enclosure
    lse: Enclosure
    gradients: dict[str, Enclosure]
    missed: int


def _one(head: Head, grad: F64 | None, tier: Tier, target: Target, exp: str, want_bias: bool, count: _Count) -> _Part:
    """All enclosures of one head."""
    seen = _Target(target)
    refine: Any = None
    if tier == "abs" or grad is not None:
        refine = "all"
    elif tier == "auto" and target is not None:
        refine = seen.rows
    settings = Settings(EXP_ULP, exp64 if exp == "table" else np.exp, refine)
    gradients: dict[str, Enclosure] = {}
    out = _tight_alone(head, count) if tier == "tight" and grad is None else None
    done = out is not None
    if out is not None:
        pass
    elif grad is None:
        out = forward(head, settings)
    else:
        out, g = backward(head, grad, settings, want_bias=want_bias)
        gradients = {n: Enclosure(getattr(g, n), getattr(g, f"{n}_rad")) for n in ("dq", "dk", "dv")}
        if g.dbias is not None and g.dbias_rad is not None:
            gradients["dbias"] = Enclosure(g.dbias, g.dbias_rad)
        gradients["dscale"] = Enclosure(*(np.array(x) for x in g.dscale))
        if g.dsink is not None:
            gradients["dsink"] = Enclosure(*(np.array(x) for x in g.dsink))
    count.norm += 0 if done else head.n
    z = _Output(head, out.z, np.zeros_like(out.z) if out.z_low is None else out.z_low, out.z_rad)
    lse = Enclosure(out.lse, out.lse_rad)
    if tier == "arb":
        lse = _balls_of(z, np.arange(head.n), lse, count)
    elif not done:
        _climb(z, tier, seen, count)
    if gradients and (
        tier == "arb" or (tier == "auto" and target is not None and head.n * head.m <= SMALL and arb.available())
    ):
        _refine_gradients(head, grad, gradients, tier, seen, count)
    return _Part(*_with_empty_rows(head, z, lse), gradients, int(seen.missed(z.mid, z.low, z.rad).sum()))


def _tight_alone(head: Head, count: _Count) -> Forward | None:
    """Tier 2 for all rows, without Tier 1; None where it refuses any."""
    got = tight(head, np.arange(head.n))
    blank = head.blank
    if got.refused or not np.isfinite(got.lse_rad[~blank]).all() or head.part.spec.lse_base != math.e:
        return None
    count.tight += head.n
    lse = np.where(head.empty, -np.inf, got.lse)
    return Forward(got.mid, got.rad, lse, np.where(head.empty, 0.0, got.lse_rad), None, got.low)


@dataclass
class _Output:
    """The output of a head while tiers improve it."""

    head: Head
    mid: F64
    low: F64
    rad: F64

    def better(self, rows: NDArray[np.intp], mid: F64, low: F64, rad: F64) -> None:
        """Take over what is narrower, entry by entry."""
        narrower = rad < self.rad[rows]
        for name, new in (("mid", mid), ("low", low), ("rad", rad)):
            old = getattr(self, name)
            old[rows] = np.where(narrower, new, old[rows])


class _Target:
    """Whether entries meet the target; relative to the largest output seen so far (it only grows)."""

    def __init__(self, target: Target) -> None:
        self.target, self.largest = target, 0.0

    def missed(self, mid: F64, low: F64 | None, rad: F64) -> Mask:
        if self.target is None:
            return np.zeros(mid.shape, bool)
        if isinstance(self.target, str):
            return Enclosure(mid, rad, low).rounded(self.target)[1]
        self.largest = max(self.largest, float(np.abs(mid).max(initial=0.0)))
        return np.asarray(rad > self.target * self.largest)

    def rows(self, mid: F64, rad: F64) -> Mask:
        """For Tier 1: rows where the finer product is worth its cost."""
        return np.asarray(self.missed(mid, None, rad).any(axis=1))


def _climb(z: _Output, tier: Tier, seen: _Target, count: _Count) -> None:
    def missed() -> NDArray[np.intp]:
        return np.flatnonzero(seen.missed(z.mid, z.low, z.rad).any(axis=1))

    if tier == "tight" or (tier == "auto" and len(missed())):
        rows = np.arange(z.head.n) if tier == "tight" else missed()
        got = tight(z.head, rows)
        count.tight += len(rows) - len(got.refused)
        count.refused |= set(got.refused.values())
        z.better(rows, got.mid, got.low, got.rad)
    if tier != "auto":
        return
    rows = missed()
    affordable = len(rows) * z.head.m * (z.head.q.shape[1] + z.head.v.shape[1]) <= arb.BUDGET
    if len(rows) and affordable and arb.available():
        _balls_of(z, rows, None, count)
    rows = missed()
    if len(rows) and len(rows) * z.head.m * (z.head.q.shape[1] + 1) <= arb.BUDGET:
        _by_ties(z, rows, seen, count)


def _balls_of(z: _Output, rows: NDArray[np.intp], lse: Enclosure | None, count: _Count) -> Any:
    got, logs = arb.outputs(z.head, rows)
    z.better(rows, got.mid, got.low, got.rad)
    count.balls += len(rows)
    if lse is None:
        return None
    base = z.head.part.spec.lse_base
    if base != math.e:
        return lse
    keep = ~z.head.empty
    return Enclosure(
        np.where(keep, logs.mid, lse.mid), np.where(keep, logs.rad, lse.rad), np.where(keep, logs.low, 0.0)
    )


def _by_ties(z: _Output, rows: NDArray[np.intp], seen: _Target, count: _Count) -> None:
    for i in rows.tolist():
        groups = ties.group_keys(z.head, i)
        if groups is None:
            continue
        row = slice(i, i + 1)
        for c in np.flatnonzero(seen.missed(z.mid[row], z.low[row], z.rad[row])[0]).tolist():
            exact = ties.exact_entry(z.head, groups, c)
            if exact is not None:
                z.mid[i, c], z.low[i, c], z.rad[i, c] = ties.as_pair(exact)
                count.ties += 1


def _refine_gradients(
    head: Head, grad: F64 | None, gradients: dict[str, Enclosure], tier: Tier, seen: _Target, count: _Count
) -> None:
    assert grad is not None
    wide = any(_Target(seen.target).missed(e.mid, e.low, e.rad).any() for e in gradients.values())
    if tier != "arb" and not wide:
        return
    got = arb.gradients(head, np.where(head.blank[:, None], 0.0, grad))
    for name in gradients:
        ball = got[name]
        gradients[name] = Enclosure(ball.mid, ball.rad, ball.low)
    count.gradients = "ball arithmetic"


def _with_empty_rows(head: Head, z: _Output, lse: Enclosure) -> tuple[Enclosure, Enclosure]:
    if head.part.spec.empty_row == "nan":
        for part in (z.mid, z.rad):
            part[head.blank] = np.nan
    return Enclosure(z.mid, z.rad, z.low), lse


def _assemble(
    heads: Heads,
    parts: list[_Part],
    graded: bool,
    bias: Any,
    sink: Any,
    tier: Tier,
    target: Target,
    exp: str,
    count: _Count,
) -> Certificate:
    problem = heads.problem
    n, m, d, d_v = problem.n, problem.m, problem.q.shape[-1], problem.v.shape[-1]

    def joined(pick: Callable[[_Part], Enclosure], axes: tuple[int, ...]) -> Enclosure:
        got = [pick(p) for p in parts]
        lows = [np.zeros_like(e.mid) if e.low is None else e.low for e in got]
        low = heads.join(lows, axes) if any(e.low is not None for e in got) else None
        return Enclosure(heads.join([e.mid for e in got], axes), heads.join([e.rad for e in got], axes), low)

    found: dict[str, Enclosure | None] = dict.fromkeys(("dq", "dk", "dv", "dbias", "dscale", "dsink"))
    if graded:
        found["dq"] = joined(lambda p: p.gradients["dq"], (n, d))
        for name, width in (("dk", d), ("dv", d_v)):
            found[name] = _over_groups(joined(lambda p, name=name: p.gradients[name], (m, width)), heads)  # type: ignore[misc]
        scale = joined(lambda p: p.gradients["dscale"], ())
        found["dscale"] = add_up(scale.reshape(-1), 0) if len(parts) > 1 else scale.reshape(-1)[0]
        if bias is not None:
            found["dbias"] = _to_shape(joined(lambda p: p.gradients["dbias"], (n, m)), np.shape(bias))
        if sink is not None:
            zero = Enclosure(np.array(0.0), np.array(0.0))
            found["dsink"] = _to_shape(joined(lambda p: p.gradients.get("dsink", zero), ()), np.shape(sink))
    return Certificate(
        output=joined(lambda p: p.z, (n, d_v)),
        lse=joined(lambda p: p.lse, (n,)),
        **found,
        assumptions=_assumptions(heads, tier, exp, count),
        steps=_steps(count, graded),
        undecided=sum(p.missed for p in parts),
        target=target,
        versions=_versions(),
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


def _steps(count: _Count, graded: bool) -> tuple[str, ...]:
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


def _assumptions(heads: Heads, tier: Tier, exp: str, count: _Count) -> tuple[str, ...]:
    spec = heads.problem.spec
    d = heads.problem.q.shape[-1]
    scale = f"1/√{d}, the real number" if spec.scale is None else f"{spec.scale!r}, exactly"
    source = "the table exp of this package, proved" if exp == "table" else "NumPy's own tests state 1 ulp for float64"
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
    if tier == "arb":
        out.append("A5  ball arithmetic of Arb (python-flint) is right")
    return tuple(out)


def _versions() -> dict[str, str]:
    from compute.threads import blas_kernel

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
