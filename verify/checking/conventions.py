"""Conventions, named rather than failed: choices on which correct implementations differ.

Guarantees: each probe is a tiny input whose candidate answers lie far apart; what is met is one of them or is shown as
a number. A declared convention that is not met is a violation; an undeclared one never is.
Does not: prefer one convention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from verify.checking.calls import Call, Reply
from verify.checking.cases import Setting, direct
from verify.checking.properties import Broken
from verify.checking.reference import Reading
from verify.checking.result import Convention
from verify.checking.specs import CONVENTIONS
from verify.checking.values import Violation, metadata

Ask = Callable[[Call], Reply]


@dataclass(frozen=True)
class Met:
    """A convention met, and the violation if another one was declared (or none may be met at all)."""

    convention: Convention
    broken: Broken | None = None


def reading_of(met: list[Met], declared: dict[str, str]) -> Reading:
    """How the reference must read calls: declared conventions first, then those met."""
    found = {m.convention.name: m.convention.met for m in met} | declared
    return Reading(
        tiled=found.get("group-order") == "tiled",
        cap_last=found.get("softcap-order") == "after",
        exclusive=found.get("window-ends") == "exclusive",
        rising=found.get("alibi-ahead") == "rising",
    )


def conventions(setting: Setting, ask: Ask) -> Iterator[Met]:
    """Every convention that the target can be asked about, one by one."""
    for probe in (
        causal_corner,
        empty_rows,
        lowest_rows,
        behind_mask,
        masked_beside_low,
        group_order,
        window_ends,
        softcap_order,
        slopes_ahead,
        base_of_lse,
        lse_of_empty,
        no_keys,
        determinism,
    ):
        yield from probe(setting, ask)


def _met(
    setting: Setting, name: str, call: Call, kind: str, got: str, *, label: str = "", never: tuple[str, ...] = (),
    value: float | None = None,
) -> Met:  # fmt: skip
    """Compare with what is declared. never: answers that no convention allows."""
    declared = setting.declared.conventions.get(name)
    convention = Convention(name + label, got, CONVENTIONS.get(name, ()), declared)
    wrong = (declared is not None and got != declared) or got in never
    if not wrong:
        return Met(convention)
    wanted = f"declared {declared}" if declared is not None else f"expected one of {', '.join(CONVENTIONS[name])}"
    text = f"{name}{label}: met {got}, {wanted}"
    return Met(convention, Broken(f"convention {name}", kind, call, Violation(f"convention {name}", text, got=value)))


def _first(reply: Reply) -> float | None:
    """The first entry of the output, or None where there is none."""
    if reply.fault is not None or reply.output is None or not reply.output.size:
        return None
    return float(reply.output.reshape(-1)[0])


def _closest(value: float, candidates: dict[str, float]) -> str:
    if math.isnan(value):
        return "nan"
    for name, wanted in candidates.items():
        if abs(value - wanted) <= 0.02 * max(1.0, abs(wanted)):
            return name
    return f"{value:.6g}"


def causal_corner(setting: Setting, ask: Ask) -> Iterator[Met]:
    """Two queries, four keys, equal scores: rows 1, 1.5 (top-left) or 2, 2.5 (bottom-right)."""
    if not setting.can("causal") or "cu_seqlens" in setting.has:
        return
    spec = setting.base.with_(causal="top-left")
    call = setting.call(np.zeros((2, 1)), np.zeros((4, 1)), np.array([[1.0], [2.0], [3.0], [4.0]]), spec)
    reply = ask(call)
    if reply.fault is not None:
        if setting.corner is None:
            yield Met(Convention("causal", f"refuses n_q != n_k ({reply.message[:80]})", CONVENTIONS["causal"], None))
        return
    value = _first(reply)
    if value is not None:
        got = _closest(value, {"top-left": 1.0, "bottom-right": 2.0, "ignored": 2.5})
        if got in CONVENTIONS["causal"] or setting.corner is None:
            yield _met(setting, "causal", call, "causal alignment", got, value=value)


def empty_rows(setting: Setting, ask: Ask) -> Iterator[Met]:
    """A row without keys, by each way to make one: 0, the mean of all values, or NaN."""
    values, rows = [3.0, 6.0, 7.0, 12.0], np.zeros((4, 4))
    mask = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1]], bool)[None, None]
    ways: dict[str, Call] = {}
    if setting.can("mask"):
        ways["by mask"] = direct(setting, rows, values, mask=mask)
    if setting.can("bias"):
        ways["by a bias of -inf"] = direct(setting, rows, values, bias=np.where(mask, 0.0, -np.inf))
    if setting.can("mask", "causal"):
        spec = setting.spec(causal=True)
        ways["by mask and causal"] = direct(
            setting, rows, values, spec, mask=np.array([[0, 1, 1, 1]] * 4, bool)[None, None]
        )
    if setting.can("causal") and setting.corner == "bottom-right":
        spec = setting.spec(causal=True)
        ways["by causal"] = setting.call(np.zeros((5, 1)), np.zeros((4, 1)), np.array(values)[:, None], spec)
    if setting.can("key_lengths"):
        ways["by length 0"] = direct(setting, [0.0] * 4, values, key_lengths=np.array([0]))
    for way, call in ways.items():
        reply = ask(call)
        value = _first(reply)
        if value is None:
            met = f"raises ({reply.message[:60]})" if reply.fault == "raises" else f"{reply.fault}"
            yield _met(setting, "empty-row", call, "empty row", met, label=f" {way}")
        else:
            got = _closest(value, {"zero": 0.0, "mean": 7.0})
            yield _met(setting, "empty-row", call, "empty row", got, label=f" {way}", value=value)


def lowest_rows(setting: Setting, ask: Ask) -> Iterator[Met]:
    """A row of the lowest finite number added to scores: exact reals, absorbed to a mean, or read as empty."""
    if not setting.can("bias"):
        return
    low = _lowest(setting)
    for label, scores, values, exact in (
        ("", [1.0, 2.0], [10.0, 20.0], 10 + 10 / (1 + math.exp(-1))),
        (", negative scores", [-24.0, -26.0], [10.0, 20.0], 10 + 10 / (1 + math.exp(2))),
    ):
        call = direct(setting, scores, values, bias=np.full((1, 1, 1, 2), low))
        value = _first(ask(call))
        if value is not None:
            got = _closest(value, {"exact": exact, "mean": 15.0, "empty": 0.0})
            never = ("nan",) if not label else ()
            yield _met(setting, "finfo-row", call, "finfo.min row", got, label=label, never=never, value=value)
    call = direct(setting, [0.0, 0.0], [5.0, 9.0], bias=np.array([[[[-np.inf, low]]]]))
    value = _first(ask(call))
    if value is not None:
        got = _closest(value, {"exact": 9.0, "mean": 7.0, "empty": 0.0})
        yield _met(setting, "finfo-row", call, "mask composition", got, label=" beside -inf", value=value)


def _lowest(setting: Setting) -> float:
    from compute.roundings import limits

    return -limits(setting.dtype).largest


def behind_mask(setting: Setting, ask: Ask) -> Iterator[Met]:
    """NaN and inf in a key or value that no row sees."""
    ways: dict[str, tuple[str, Call, float]] = {}
    bad = {"NaN": math.nan, "inf": math.inf}
    if setting.can("mask"):
        mask = np.array([[[[True, False]]]])
        for name, value in bad.items():
            ways[f"{name} in a value"] = ("0*inf", direct(setting, [0.0, 0.0], [4.0, value], mask=mask), 4.0)
        ways["NaN in a key"] = ("NaN score", direct(setting, [1.0, math.nan], [4.0, 9.0], mask=mask), 4.0)
    if setting.can("key_lengths"):
        lengths = np.array([2])
        ways["inf beyond the length"] = (
            "0*inf",
            direct(setting, [0.0] * 3, [1.0, 3.0, math.inf], key_lengths=lengths),
            2.0,
        )
    if setting.can("bias"):
        bias = np.array([[[[0.0, -np.inf]]]])
        ways["NaN in a value behind a bias of -inf"] = (
            "0*inf",
            direct(setting, [0.0, 0.0], [4.0, math.nan], bias=bias),
            4.0,
        )
    for way, (kind, call, right) in ways.items():
        met = _first(ask(call))
        if met is not None:
            got = "inert" if abs(met - right) <= 0.02 * right else "reaches"
            yield _met(setting, "behind-mask", call, kind, got, label=f" ({way})", value=met)


def masked_beside_low(setting: Setting, ask: Ask) -> Iterator[Met]:
    """A very low valid score beside a masked key of score 0: a mask imitated by a finite fill lets that key win."""
    if not setting.can("mask"):
        return
    lows = [0.875 * _lowest(setting)] if setting.dtype == "float16" else [-(2.0**34), 0.875 * _lowest(setting)]
    for low in lows:
        call = direct(setting, [low, 0.0], [1.0, 5.0], mask=np.array([[[[True, False]]]]))
        value = _first(ask(call))
        if value is not None:
            got = "a masked key is left out" if abs(value - 1) < 0.02 else f"a masked key can outweigh it ({value:.4g})"
            yield Met(Convention(f"masking, beside a score of {low:.3g}", got))


def group_order(setting: Setting, ask: Ask) -> Iterator[Met]:
    """One key a head, values 1, 2: query heads in blocks (1, 1, 2, 2) or tiled (1, 2, 1, 2)."""
    g = setting.group
    if g == 1 or setting.single:
        return
    call = setting.call(np.zeros((2 * g, 1, 1)), np.zeros((2, 1, 1)), np.array([1.0, 2.0])[:, None, None])
    reply = ask(call)
    if reply.fault is None and reply.output is not None and reply.output.size == 2 * g:
        row = [round(float(x)) if math.isfinite(float(x)) else 0 for x in reply.output.reshape(-1)]
        blocked, tiled = [1] * g + [2] * g, [1, 2] * g
        got = "blocked" if row == blocked else "tiled" if row == tiled else str(row)
        yield _met(setting, "group-order", call, "GQA order", got)


def window_ends(setting: Setting, ask: Ask) -> Iterator[Met]:
    """Six keys, window 2 back: does row 5 see key 3?"""
    if not setting.can("window"):
        return
    changes = {"causal": True} if setting.can("causal") else {}
    spec = setting.spec(window=(2, 0), **changes)
    values = np.array([0.0, 0.0, 0.0, 12.0, 0.0, 0.0])[:, None]
    call = setting.call(np.zeros((6, 1)), np.zeros((6, 1)), values, spec)
    reply = ask(call)
    if reply.fault is None and reply.output is not None and reply.output.size >= 6:
        value = float(reply.output.reshape(-1)[5])
        got = _closest(value, {"inclusive": 4.0, "exclusive": 0.0, "one key too wide": 3.0, "ignored": 2.0})
        yield _met(setting, "window-ends", call, "window", got, value=value)


def softcap_order(setting: Setting, ask: Ask) -> Iterator[Met]:
    """Score 3, cap 2, bias 0 and 2: the cap before the bias or after it."""
    if not setting.can("softcap", "bias"):
        return
    spec = setting.spec(softcap=2.0)
    call = direct(setting, [3.0, 0.0], [1.0, 0.0], spec, bias=np.array([[[[0.0, 2.0]]]]))
    value = _first(ask(call))
    if value is not None:
        gap = 2 * math.tanh(1.5) - 2, 2 * math.tanh(1.5) - 2 * math.tanh(1.0)
        got = _closest(value, {"before": 1 / (1 + math.exp(-gap[0])), "after": 1 / (1 + math.exp(-gap[1]))})
        yield _met(setting, "softcap-order", call, "softcap order", got, value=value)


def slopes_ahead(setting: Setting, ask: Ask) -> Iterator[Met]:
    """ALiBi without causal: a later key loses with its distance, or gains (slope·(j − i) written for causal rows)."""
    if not setting.can("alibi_slopes") or setting.base.causal != "none":
        return
    slopes = np.ones(setting.group).astype(setting.kind)
    call = setting.call(np.zeros((2, 1)), np.zeros((2, 1)), np.array([[0.0], [1.0]]), alibi_slopes=slopes)
    value = _first(ask(call)) if setting.fits(call) else None
    if value is not None:
        got = _closest(value, {"distance": 1 / (1 + math.e), "rising": 1 / (1 + 1 / math.e), "ignored": 0.5})
        yield _met(setting, "alibi-ahead", call, "ALiBi", got, value=value)


def base_of_lse(setting: Setting, ask: Ask) -> Iterator[Met]:
    """Eight equal scores of 0: ln 8 or 3."""
    if not setting.can("lse"):
        return
    call = direct(setting, [0.0] * 8, [1.0] * 8, lse=True)
    reply = ask(call)
    if reply.fault is None and reply.lse is not None and reply.lse.size:
        value = float(reply.lse.reshape(-1)[0])
        got = _closest(value, {"e": math.log(8), "2": 3.0, "minus e": -math.log(8)})
        if math.isfinite(value):
            yield _met(setting, "lse-base", call, "LSE base", got, value=value)


def lse_of_empty(setting: Setting, ask: Ask) -> Iterator[Met]:
    """The log-sum-exp of a row without keys."""
    if not setting.can("lse", "mask"):
        return
    mask = np.zeros((1, 1, 1, 2), bool)
    call = direct(setting, [0.0, 0.0], [2.0, 4.0], lse=True, mask=mask)
    reply = ask(call)
    if reply.fault is None and reply.lse is not None and reply.lse.size:
        value = float(reply.lse.reshape(-1)[0])
        got = (
            "nan"
            if math.isnan(value)
            else "-inf"
            if value == -math.inf
            else "+inf"
            if value > 0 and math.isinf(value)
            else f"{value:.6g}"
        )
        yield _met(setting, "empty-lse", call, "LSE of empty", got, value=value)


def no_keys(setting: Setting, ask: Ask) -> Iterator[Met]:
    """No key at all, and no batch item: 0, NaN or an exception are conventions; numbers from nowhere are not."""
    if "cu_seqlens" in setting.has:
        return
    call = setting.call(np.zeros((2, 4)), np.zeros((0, 4)), np.zeros((0, 4)))
    if not setting.fits(call):
        return
    reply = ask(call)
    value = _first(reply)
    got = f"raises ({reply.message[:60]})" if value is None else _closest(value, {"zero": 0.0})
    wrong = None
    if value is not None and got not in ("zero", "nan"):
        text = f"no keys: the output is {value:.6g}, expected 0, NaN or an exception"
        wrong = Broken("convention no keys", "zero length", call, Violation("convention no keys", text, got=value))
    yield Met(Convention("no keys", got), wrong)
    if not setting.batches or "cu_seqlens" in setting.has:
        return
    keys = np.zeros((0, call.k.shape[1], 2, 4), call.dtype)
    empty = call.with_(q=call.q[:0], k=keys, v=keys)
    reply = ask(empty)
    if reply.fault is not None:
        yield Met(Convention("no batch item", f"raises ({reply.message[:60]})"))
        return
    found = metadata(empty, reply)
    broken = Broken("convention no batch item", "zero length", empty, found[0]) if found else None
    yield Met(Convention("no batch item", found[0].message if found else "an empty output"), broken)


def determinism(setting: Setting, ask: Ask) -> Iterator[Met]:
    """The same call five times: bit-equal or not."""
    rng = np.random.default_rng(5)
    q, k, v = setting.normal(rng, 33, 129, 16, h=4)
    call = setting.call(q, k, v)
    if not setting.fits(call):
        return
    images = set()
    for _ in range(5):
        reply = ask(call)
        if reply.fault is not None or reply.output is None:
            return
        images.add(reply.output.tobytes())
    got = "yes" if len(images) == 1 else "no"
    yield _met(setting, "deterministic", call, "determinism", got)


def gradient_determinism(setting: Setting, ask: Ask) -> Iterator[Met]:
    """The same backward pass five times, over several tiles: bit-equal or not, the first gradient that isn't named."""
    rng = np.random.default_rng(6)
    q, k, v = setting.normal(rng, 130, 260, 16, h=3)
    call = setting.call(q, k, v)
    call = call.with_(grad_output=rng.standard_normal((*call.q.shape[:3], v.shape[-1])).astype(setting.kind))
    if not setting.fits(call):
        call = call.with_(k=call.k[:, :, :130], v=call.v[:, :, :130])
    if not setting.fits(call):
        return
    images: dict[str, set[bytes]] = {}
    for _ in range(5):
        reply = ask(call)
        if reply.fault is not None or not reply.gradients:
            return
        for name, gradient in reply.gradients.items():
            images.setdefault(name, set()).add(gradient.tobytes())
    differ = [name for name, found in images.items() if len(found) > 1]
    label = f" (gradient of {', '.join(differ)})" if differ else " (gradients)"
    yield _met(setting, "deterministic", call, "determinism", "no" if differ else "yes", label=label)
