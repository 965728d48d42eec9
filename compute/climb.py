"""One head of a certificate: the tiers in their order, row by row, only as far as the target needs.

Guarantees: what is returned contains the exact values, whichever tier gave it; a finer tier replaces a coarser one
entry by entry and only where it is narrower.
Does not: test the assumptions (compute.certificate does). Ball arithmetic and the rule for ties work on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from compute import arb, device_arithmetic, ties
from compute.arrays import Array
from compute.enclosure import Enclosure
from compute.heads import F64, Head, Mask
from compute.outward import largest
from compute.table_exp import exp64
from compute.tier1 import Forward, forward
from compute.tier1_backward import backward
from compute.tier1_operands import Settings, device_settings
from compute.tier2 import tight
from compute.tier2_backward import TightGradients, tight_backward

Tier = Literal["auto", "norm", "abs", "tight", "arb"]
Target = Literal["f32", "f64"] | float | None
EXP_ULP = 1.0
SMALL = 1 << 14  # scores of a head up to which ball arithmetic may take over the gradients
TIGHT, BALLS = "Tier 2 (split products, table exp)", "ball arithmetic"


@dataclass
class Count:
    """Rows and entries that each tier decided."""

    norm: int = 0
    tight: int = 0
    balls: int = 0
    ties: int = 0
    gradients: str = ""
    refused: set[str] = field(default_factory=set)


@dataclass
class Certified:
    """The enclosures of one head, and how many entries of its output miss the target."""

    z: Enclosure
    lse: Enclosure
    gradients: dict[str, Enclosure]
    missed: int


def certify_head(
    head: Head, grad: F64 | None, tier: Tier, target: Target, exp: str, want_bias: bool, count: Count
) -> Certified:
    """All enclosures of one head; `count` is told what each tier did."""
    xp, seen = head.xp, _Target(target)
    refine: Any = None
    if tier == "abs" or grad is not None:
        refine = "all"
    elif tier == "auto" and target is not None:
        refine = seen.rows
    settings = _settings(head, exp, refine)
    gradients: dict[str, Enclosure] = {}
    out = None
    if tier == "tight":
        out, gradients = _tight_alone(head, grad, want_bias, count)
    done = out is not None
    if out is None:
        out, coarse = _tier1(head, grad, settings, want_bias)
        gradients = {name: _narrower(e, gradients.get(name)) for name, e in coarse.items()}
        count.norm += head.n
    z = _Output(head, out.z, xp.zeros(out.z.shape) if out.z_low is None else out.z_low, out.z_rad)
    lse = Enclosure(out.lse, out.lse_rad)
    if tier == "arb":
        lse = _balls_of(z, xp.arange(head.n), lse, count)
    elif not done:
        if gradients and tier == "auto" and _misses(gradients, target):
            _tight_gradients(z, grad, want_bias, gradients, count)
        _climb(z, tier, seen, count)
    small = head.n * head.m <= SMALL and arb.available()
    if gradients and (tier == "arb" or (tier == "auto" and small and _misses(gradients, target))):
        _balls_for_gradients(head, grad, gradients, count)
    return Certified(*_with_empty_rows(head, z, lse), gradients, int(seen.missed(z.mid, z.low, z.rad).sum()))


def _tier1(head: Head, grad: F64 | None, settings: Settings, want_bias: bool) -> tuple[Forward, dict[str, Enclosure]]:
    """Tier 1 for all rows, and for the gradients."""
    if grad is None:
        return forward(head, settings), {}
    out, g = backward(head, grad, settings, want_bias=want_bias)
    found = {name: Enclosure(getattr(g, name), getattr(g, f"{name}_rad")) for name in ("dq", "dk", "dv")}
    if g.dbias is not None and g.dbias_rad is not None:
        found["dbias"] = Enclosure(g.dbias, g.dbias_rad)
    for name, pair in (("dscale", g.dscale), ("dsink", g.dsink)):
        if pair is not None:
            found[name] = Enclosure(*(head.xp.asarray(x) for x in pair))
    return out, found


def _tight_alone(
    head: Head, grad: F64 | None, want_bias: bool, count: Count
) -> tuple[Forward | None, dict[str, Enclosure]]:
    """Tier 2 for all rows, without Tier 1 (None where it refuses any), and for the gradients."""
    xp, gradients = head.xp, {}
    if grad is None:
        got = tight(head, np.arange(head.n))
    else:
        got, g = tight_backward(head, grad, want_bias=want_bias)
        gradients = _enclosures(g)
        count.gradients = TIGHT
    if got.refused or head.part.spec.lse_base != math.e or not (xp.isfinite(got.lse_rad) | head.blank).all():
        return None, gradients
    count.tight += head.n
    lse = xp.where(head.empty, -math.inf, got.lse)
    return Forward(got.mid, got.rad, lse, xp.where(head.empty, 0.0, got.lse_rad), None, got.low), gradients


def _enclosures(g: TightGradients) -> dict[str, Enclosure]:
    """By name, what was asked for."""
    parts = {name: getattr(g, name) for name in ("dq", "dk", "dv", "dbias", "dscale", "dsink")}
    return {name: Enclosure(b.mid, b.rad, b.low) for name, b in parts.items() if b is not None}


def _narrower(a: Enclosure, b: Enclosure | None) -> Enclosure:
    """The narrower of two enclosures, entry by entry."""
    if b is None:
        return a
    xp, better = a.xp, b.rad < a.rad
    low = [xp.zeros(e.mid.shape) if e.low is None else e.low for e in (a, b)]
    return Enclosure(xp.where(better, b.mid, a.mid), xp.where(better, b.rad, a.rad), xp.where(better, low[1], low[0]))


def missed(gradient: Enclosure, target: Target) -> int:
    """Entries that miss the target, relative to the largest of its own gradient."""
    return int(_Target(target).missed(gradient.mid, gradient.low, gradient.rad).sum())


def _misses(gradients: dict[str, Enclosure], target: Target) -> bool:
    return any(missed(e, target) for e in gradients.values())


def _tight_gradients(
    z: _Output, grad: F64 | None, want_bias: bool, gradients: dict[str, Enclosure], count: Count
) -> None:
    """Tier 2 for the gradients, and for the output, which comes with them."""
    assert grad is not None
    got, g = tight_backward(z.head, grad, want_bias=want_bias)
    count.tight += z.head.n - len(got.refused)
    count.refused |= set(got.refused.values())
    z.better(slice(None), got.mid, got.low, got.rad)
    for name, e in _enclosures(g).items():
        gradients[name] = _narrower(gradients[name], e)
    count.gradients = TIGHT


def _settings(head: Head, exp: str, refine: Any) -> Settings:
    if not head.device:
        return Settings(EXP_ULP, exp64 if exp == "table" else np.exp, refine)
    one, shifted = device_arithmetic.exps()
    return device_settings(Settings(EXP_ULP, one, refine, shifted_exp=shifted), head.m)


@dataclass
class _Output:
    """The output of a head while tiers improve it."""

    head: Head
    mid: F64
    low: F64
    rad: F64

    def better(self, rows: Array | slice, mid: F64, low: F64, rad: F64) -> None:
        """Take over what is narrower, entry by entry."""
        narrower = rad < self.rad[rows]
        for name, new in (("mid", mid), ("low", low), ("rad", rad)):
            old = getattr(self, name)
            old[rows] = self.head.xp.where(narrower, new, old[rows])


class _Target:
    """Whether entries meet the target; relative to the largest output seen so far (it only grows)."""

    def __init__(self, target: Target) -> None:
        self.target, self.largest = target, 0.0

    def missed(self, mid: F64, low: F64 | None, rad: F64) -> Mask:
        if self.target is None:
            return abs(mid) < 0
        if isinstance(self.target, str):
            return Enclosure(mid, rad, low).rounded(self.target)[1]
        self.largest = max(self.largest, float(largest(abs(mid))))
        return rad > self.target * self.largest

    def rows(self, mid: F64, rad: F64) -> Mask:
        """For Tier 1: rows where the finer product is worth its cost."""
        return self.missed(mid, None, rad).any(axis=1)


def _climb(z: _Output, tier: Tier, seen: _Target, count: Count) -> None:
    xp = z.head.xp

    def missed() -> Array:
        return xp.flatnonzero(seen.missed(z.mid, z.low, z.rad).any(axis=1))

    if tier == "tight" or (tier == "auto" and len(missed())):
        rows = xp.arange(z.head.n) if tier == "tight" else missed()
        got = tight(z.head, xp.asnumpy(rows) if z.head.device else rows)
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


def _balls_of(z: _Output, rows: Array, lse: Enclosure | None, count: Count) -> Any:
    xp = z.head.xp
    got, logs = arb.outputs(z.head.host, xp.asnumpy(rows) if z.head.device else rows)
    z.better(rows, *(xp.asarray(x) for x in (got.mid, got.low, got.rad)))
    count.balls += len(rows)
    if lse is None:
        return None
    base = z.head.part.spec.lse_base
    if base != math.e:
        return lse
    keep = ~z.head.empty
    mid, rad, low = (xp.asarray(x) for x in (logs.mid, logs.rad, logs.low))
    return Enclosure(xp.where(keep, mid, lse.mid), xp.where(keep, rad, lse.rad), xp.where(keep, low, 0.0))


def _by_ties(z: _Output, rows: Array, seen: _Target, count: Count) -> None:
    head, xp = z.head.host, z.head.xp
    for i in rows.tolist():
        groups = ties.group_keys(head, i)
        if groups is None:
            continue
        row = slice(i, i + 1)
        for c in xp.flatnonzero(seen.missed(z.mid[row], z.low[row], z.rad[row])[0]).tolist():
            exact = ties.exact_entry(head, groups, c)
            if exact is not None:
                z.mid[i, c], z.low[i, c], z.rad[i, c] = ties.as_pair(exact)
                count.ties += 1


def _balls_for_gradients(head: Head, grad: F64 | None, gradients: dict[str, Enclosure], count: Count) -> None:
    assert grad is not None
    xp = head.xp
    grad = xp.where(head.blank[:, None], 0.0, grad)
    got = arb.gradients(head.host, xp.asnumpy(grad) if head.device else grad)
    for name in gradients:
        ball = got[name]
        gradients[name] = Enclosure(xp.asarray(ball.mid), xp.asarray(ball.rad), xp.asarray(ball.low))
    count.gradients = BALLS


def _with_empty_rows(head: Head, z: _Output, lse: Enclosure) -> tuple[Enclosure, Enclosure]:
    if head.part.spec.empty_row == "nan":
        for part in (z.mid, z.rad):
            part[head.blank] = math.nan
    return Enclosure(z.mid, z.rad, z.low), lse
