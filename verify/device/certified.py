"""The device check's section on certified enclosures: the table exp bit by bit, certificates against Arb, their cost.

Guarantees: every enclosure that `compute.certify` gives on the machine's arrays is compared with exact values that
were made elsewhere (verify.device.arb_cases); exact values moved by three radii, and values of other inputs, must be
found excluded in the same run.
Does not: judge the times; they are recorded beside the bar.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from compute.certificate import Certificate, certify
from compute.climb import Tier
from compute.kernels import table_exp as kernel
from compute.table_exp import exp64
from verify.device.arb_cases import Case, Met, cases, values
from verify.device.machine import Machine
from verify.device.record import Record

BAR = 1.5  # a Tier 1 certificate against plain float64 on the same device
# With gradients or without: those of "norm" are those of "abs".
TIERS: tuple[tuple[Tier, bool], ...] = (("norm", False), ("abs", True), ("tight", True))


def certified(machine: Machine, record: Record) -> None:
    """All parts; one that fails leaves the others."""
    record.attempt("table exp", partial(_table_exp, machine, record))
    for case in cases():
        for tier, graded in TIERS:
            record.attempt(f"{case.name}, {tier}", partial(_one, machine, record, case, tier, graded))
    record.attempt("controls", partial(_controls, machine, record))
    for n in (256,) if record.tiny else (4096, 16384):
        record.attempt(f"cost at n = {n}", partial(_cost, machine, record, n))


def _table_exp(machine: Machine, record: Record) -> None:
    """The kernel's bits are the host's, whose error is proved; its rate beside the library's exp."""
    rng, count = np.random.default_rng(1), 1 << (12 if record.tiny else 20)
    x = np.concatenate([-rng.random(count) * 760, -rng.random(count), -(np.arange(count) + 0.5) / 256, [0.0, -np.inf]])
    want = exp64(x)
    got = machine.host(kernel.exp64(machine.backend, machine.xp.asarray(x)))
    scores = machine.xp.asarray(x[: 32 * (count // 32)].reshape(32, -1))[:, 1:]
    top = scores.max(axis=1)
    rows = machine.host(scores) - machine.host(top)[:, None]
    shifted = machine.host(kernel.shifted_exp64(machine.backend, scores, top))
    differ = int((_bits(got) != _bits(want)).sum() + (_bits(shifted) != _bits(exp64(rows))).sum())
    record.row(what="table exp against its proved twin", entries=got.size + rows.size, differ=differ, ok=differ == 0)
    n = 128 if record.tiny else 16384
    s = machine.xp.asarray(-rng.random((n, n)) * 8)
    top = machine.xp.zeros(n)
    ours = machine.seconds(lambda: kernel.shifted_exp64(machine.backend, s, top))
    theirs = machine.seconds(lambda: machine.xp.exp(machine.xp.subtract(s, top[:, None])))
    record.row(
        what="shifted exp", n=n, gelements_per_s=n * n / ours / 1e9, library_gelements_per_s=n * n / theirs / 1e9
    )


def _bits(a: Any) -> Any:
    return np.ascontiguousarray(a).view(np.int64)


def certificate(machine: Machine, case: Case, tier: Tier, graded: bool) -> Certificate:
    """`compute.certify` of a case on the machine's arrays."""
    xp = machine.xp
    given = {name: xp.asarray(a) for name, a in case.given.items()}
    grad = xp.asarray(case.grad) if graded else None
    q, k, v = (xp.asarray(a) for a in (case.q, case.k, case.v))
    return certify(q, k, v, case.spec, **given, grad_output=grad, tier=tier, exp="table")


def meet(machine: Machine, case: Case, c: Certificate, shift: float = 0.0) -> Met:
    """All enclosures of a certificate against the exact values of a case."""
    met = Met()
    for name, e in c.enclosures().items():
        if name in case.left_out:
            continue
        parts = {part: getattr(e, part) for part in ("mid", "rad", "low")}
        host = replace(e, **{part: None if a is None else machine.host(a) for part, a in parts.items()})
        met.add(host, values()[case.name][name], shift)
    return met


def _one(machine: Machine, record: Record, case: Case, tier: Tier, graded: bool) -> None:
    c = certificate(machine, case, tier, graded)
    met = meet(machine, case, c)
    # A finite value has a finite radius; a radius without limit would meet everything.
    vague = sum(int((~np.isfinite(machine.host(e.rad))).sum()) for e in c.enclosures().values())
    record.row(
        case=case.name,
        tier=tier,
        entries=met.entries,
        excluded=met.excluded,
        unbounded=vague,
        worst=met.worst,
        widths={name: w["relative"] for name, w in c.widths().items()},
        steps="; ".join(c.steps),
        ok=met.excluded == 0 and vague == 0,
    )


def _controls(machine: Machine, record: Record) -> None:
    """What must fail: exact values moved by three radii, and a certificate of slightly other inputs."""
    for tier, graded in TIERS:
        case = cases()[0]
        met = meet(machine, case, certificate(machine, case, tier, graded), 3.0)
        record.row(what=f"moved by three radii, {tier}", excluded=met.excluded, ok=met.excluded == met.entries)
        other = replace(case, v=case.v * (1 + 2.0**-36))
        met = meet(machine, case, certificate(machine, other, tier, graded))
        record.row(what=f"values off by 2^-36, {tier}", excluded=met.excluded, ok=met.excluded > 0)


def _cost(machine: Machine, record: Record, n: int) -> None:
    """Tier 1 beside plain float64 of the same library, one head of 64 channels: forward, then with gradients."""
    rng, repeats = np.random.default_rng(n), 3
    q, k, v, grad = (machine.draw(rng, (n, 64), np.float64) for _ in range(4))
    plain = machine.seconds(lambda: _plain(machine.xp, q, k, v), repeats)
    both = machine.seconds(lambda: _plain_gradients(machine.xp, q, k, v, grad), repeats)
    for tier in ("norm", "abs"):
        seconds = machine.seconds(partial(certify, q, k, v, tier=tier, exp="table"), repeats)
        _ratio(machine, record, f"Tier 1 {tier}, forward", n, seconds, plain)
    seconds = machine.seconds(lambda: certify(q, k, v, grad_output=grad, tier="norm", exp="table"), repeats)
    _ratio(machine, record, "Tier 1, forward and backward", n, seconds, both)


def _ratio(machine: Machine, record: Record, what: str, n: int, seconds: float, plain: float) -> None:
    ratio = seconds / plain
    beside = {"bar": BAR, "within": ratio <= BAR} if machine.cuda else {}
    record.row(what=what, n=n, ms=seconds * 1e3, plain_ms=plain * 1e3, ratio=ratio, **beside)


def _weights(xp: Any, q: Any, k: Any) -> Any:
    s = xp.matmul(q * 0.125, k.T)
    s -= s.max(axis=1, keepdims=True)
    xp.exp(s, out=s)
    return s


def _plain(xp: Any, q: Any, k: Any, v: Any) -> Any:
    p = _weights(xp, q, k)
    return xp.matmul(p, v) / p.sum(axis=1, keepdims=True)


def _plain_gradients(xp: Any, q: Any, k: Any, v: Any, grad: Any) -> Any:
    p = _weights(xp, q, k)
    p /= p.sum(axis=1, keepdims=True)
    out = xp.matmul(p, v)
    ds = xp.matmul(grad, v.T)
    ds -= (grad * out).sum(axis=1, keepdims=True)
    ds *= p
    return out, xp.matmul(ds, k) * 0.125, xp.matmul(ds.T, q) * 0.125, xp.matmul(p.T, grad)
