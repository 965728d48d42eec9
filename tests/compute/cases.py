"""A case of tests.compute.families as a head of compute, and as exact balls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from compute.heads import Head, split
from compute.spec import Spec
from compute.tier1_backward import backward
from compute.tier1_operands import Settings
from compute.tier2_backward import tight_backward
from tests.compute.families import Case, keep_of
from tests.compute.truth import excess, truth


def spec_of(extras: dict[str, Any]) -> Spec:
    return Spec(scale=extras.get("scale"), causal=extras.get("causal", "none"), softcap=extras.get("softcap"))


def arrays_of(extras: dict[str, Any]) -> dict[str, Any]:
    out = {name: extras[name] for name in ("mask", "bias") if name in extras}
    if "sink" in extras:
        out["sink"] = np.array([extras["sink"]])
    return out


def head_of(case: Case) -> Head:
    q, k, v, extras = case
    return split(q, k, v, spec_of(extras), **arrays_of(extras)).items[0]


def exact_of(case: Case, grad: np.ndarray | None = None, prec: int = 200) -> dict[str, Any]:
    q, k, v, extras = case
    biases = (np.where(np.isfinite(extras["bias"]), extras["bias"], 0.0),) if "bias" in extras else ()
    return truth(
        q, k, v, scale=extras.get("scale"), keep=keep_of(extras, len(q), len(k)), biases=biases,
        softcap=extras.get("softcap"), sink=extras.get("sink"), grad_output=grad, prec=prec,
    )  # fmt: skip


def shares(case: Case, grad: np.ndarray, settings: Settings, prec: int = 200) -> Iterator[tuple[str, float]]:
    """(quantity, proved error over radius) of both tiers for every entry: above 1 is a violation."""
    head = head_of(case)
    with np.errstate(all="ignore"):
        out, got = backward(head, grad, settings, want_bias=True)
        second, fine = tight_backward(head, grad, want_bias=True, tile=settings.tile)
    exact = exact_of(case, grad, prec=max(prec, 300))
    for row in exact["rows"]:
        yield "lse", excess(exact["lse"][row], out.lse[row], out.lse_rad[row], prec=prec)
        yield "lse, tier 2", excess(exact["lse"][row], second.lse[row], second.lse_rad[row], prec=max(prec, 300))
        for c in range(out.z.shape[1]):
            ball = exact["z"][row, c]
            yield "output", excess(ball, out.z[row, c], out.z_rad[row, c], prec=prec)
            low = second.low[row, c]
            yield "output, tier 2", excess(ball, second.mid[row, c], second.rad[row, c], low, prec=max(prec, 300))
    for what in ("dq", "dk", "dv", "dbias"):
        mid, rad, e = getattr(got, what), getattr(got, f"{what}_rad"), getattr(fine, what)
        for at in np.ndindex(mid.shape):
            ball = exact[what][at]
            yield what, excess(ball, mid[at], rad[at], prec=prec)
            yield f"{what}, tier 2", excess(ball, e.mid[at], e.rad[at], e.low[at], prec=max(prec, 300))
    for what in ("dscale", "dsink"):
        coarse, e = getattr(got, what), getattr(fine, what)
        if coarse is not None:
            yield what, excess(exact[what], *coarse, prec=prec)
            low = float(e.low)
            yield f"{what}, tier 2", excess(exact[what], float(e.mid), float(e.rad), low, prec=max(prec, 300))
