"""Judging gradients: inputs, cotangents, the comparison, and names for known wrong ones.

Guarantees: cotangents are random, one-hot and zero; a zero or missing gradient fails; where an input has rows without
keys their cotangent is 0, so that no convention enters and every gradient must be finite. The closed form is held
against a complex step in the same run.
Does not: judge gradients of a target that gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from verify.checking.allowance import Judge, allowed
from verify.checking.arguments import shapes
from verify.checking.calls import Array, Call, Reply
from verify.checking.cases import Case, Generator, Setting, direct
from verify.checking.combinations import graded
from verify.checking.invoke import expected_gradients
from verify.checking.masked import some
from verify.checking.reference import Reading, repeated, seen_keys, truth
from verify.checking.rotary import rotated
from verify.checking.values import Violation, metadata, worst
from verify.checking.vjp import Gradient, complex_step, gradients

Ask = Callable[[Call], Reply]


class CheckersDisagree(Exception):
    """The closed form and the complex step disagree: an error of this package."""


def gradient_cases(setting: Setting, rng: Generator) -> Iterator[Case]:
    """Calls with a cotangent."""

    def case(name: str, about: str, call: Call, cotangent: Any = None, **more: Any) -> Case:
        b, h, n = call.q.shape[:3]
        shape = (b, h, n, call.v.shape[3])
        g = rng.standard_normal(shape) if cotangent is None else np.broadcast_to(np.asarray(cotangent, float), shape)
        empty = np.asarray(~np.asarray(seen_keys(call).any(-1)))
        g = np.where(empty[..., None], 0, g).astype(setting.kind)
        return Case(f"gradient: {name}", about, call.with_(grad_output=g, **more))

    yield case("two keys", "gradient", direct(setting, [1.0, 0.0], [1.0, 0.0]), 1.0)
    q, k, v = setting.normal(rng, 5, 7, 8, h=2, b=2)
    yield case("normal", "gradient", setting.call(q, k, v))
    yield case("zero cotangent", "gradient", setting.call(q, k, v), 0.0)
    one = np.zeros((5, 8))
    one[2, 3] = 1.0
    yield case("one-hot cotangent", "gradient", setting.call(q, k, v), one)
    yield case("constant cotangent", "gradient", setting.call(q, k, v), 1.0)
    q, k, v = setting.normal(rng, 9, 40, 16, h=2, size=3.0)
    yield case("scores × 3", "gradient", setting.call(q, k, v))
    size = 1000.0 if setting.dtype != "float16" else 128.0
    full = np.full((3, 2), size)
    yield case("all inputs equal and large", "gradient", setting.call(full, full, full), 1.0)
    yield case("scores -100, -101", "no max shift", direct(setting, [-100.0, -101.0], [1.0, 0.0]), 1.0)
    q, k, v = setting.normal(rng, 6, 6, 4, h=1)
    for how in ("transposed", "strided"):
        yield case(f"cotangent {how} in memory", "strides", setting.call(q, k, v, memory=(("grad_output", how),)))
    flat = setting.call(q, k, v, memory=(("grad_output", "expanded"),))
    yield case("cotangent expanded in memory", "strides", flat, rng.standard_normal((1, 4)))
    for m in (127, 128, 129, 192):
        low = np.full(m, -100.0)
        low[m // 2] = -99.0
        values = np.cos(np.arange(m))
        yield case(f"{m} keys of score -100", "ragged tile", direct(setting, low, values), 1.0)
        n = min(m, 66)
        q, k, v = setting.normal(rng, n, m, 4, h=1)
        yield case(f"{n} queries, {m} keys", "ragged tile", setting.call(q, k, v))
    if "cu_seqlens" in setting.has:
        q, k, v = setting.normal(rng, 4, 4, 4, h=1, b=2)
        half = np.zeros((2, 1, 4, 4))
        half[0] = 1.0
        yield case("packed, second cotangent 0", "packed gradient", setting.call(q, k, v), half)
    yield from _with_masks(setting, rng, case)
    yield from _with_variants(setting, rng, case)
    for drawn in graded(setting, rng):
        yield case(drawn.name, "gradient", drawn.call)
    yield from _of_arguments(setting, rng, case)


def _with_masks(setting: Setting, rng: Generator, case: Callable[..., Case]) -> Iterator[Case]:
    q, k, v = setting.normal(rng, 6, 9, 8, h=2, b=2)
    b, h = q.shape[:2]
    if setting.can("mask"):
        yield case("random mask", "gradient", setting.call(q, k, v, mask=some(rng, b, h, 6, 9)))
        mask = some(rng, 1, 1, 6, 9)
        mask[..., 0, :] = mask[..., 4, :] = False
        yield case("empty rows", "empty row", setting.call(q, k, v, mask=mask))
        hidden = np.ones((1, 1, 1, 9), bool)
        hidden[..., -1] = False
        yield case("a masked key", "ragged tile", setting.call(q, k, v, mask=hidden))
    if setting.can("bias"):
        yield case("bias", "bias gradient", setting.call(q, k, v, bias=rng.standard_normal((b, h, 6, 9))))
        rows = direct(setting, np.zeros((4, 2)), [1.0, 0.0], bias=np.zeros((1, 1, 1, 2)))
        yield case("bias over keys, rows 1, 3, 5, 7", "bias gradient", rows, np.array([[1.0], [3.0], [5.0], [7.0]]))
        yield case(
            "bias over keys only", "bias gradient", setting.call(q, k, v, bias=rng.standard_normal((1, 1, 1, 9)))
        )
        yield case("bias over heads", "bias gradient", setting.call(q, k, v, bias=rng.standard_normal((b, 1, 6, 9))))
    if setting.can("causal") or setting.base.causal != "none":
        q, k, v = setting.normal(rng, 9, 9, 8, h=2)
        spec = setting.spec(causal=True) if setting.can("causal") else setting.base
        yield case("causal", "gradient", setting.call(q, k, v, spec))
    if setting.can("window"):
        spec = setting.spec(window=(2, 0), **({"causal": True} if setting.can("causal") else {}))
        yield case("window", "gradient", setting.call(*setting.normal(rng, 9, 9, 8), spec))


def _with_variants(setting: Setting, rng: Generator, case: Callable[..., Case]) -> Iterator[Case]:
    q, k, v = setting.normal(rng, 5, 7, 8, h=2)
    if setting.can("scale"):
        yield case("scale 0.3", "gradient", setting.call(q, k, v, setting.spec(scale=0.3)))
        yield from _of_scale(setting, rng, case)
    if setting.can("q_offset", "k_offset") and setting.base.rope is not None:
        rope = replace(setting.base.rope, q_offset=9, k_offset=3)
        q8, k8, v8 = setting.normal(rng, 4, 6, 8)
        yield case("rotated, 6 apart", "RoPE gradient", setting.call(q8, k8, v8, setting.spec(rope=rope)))
    if setting.can("softcap") or setting.base.softcap is not None:
        spec = setting.spec(softcap=2.0) if setting.can("softcap") else setting.base
        yield case("softcap", "softcap gradient", direct(setting, [2.0, 0.0], [1.0, 0.0], spec), 1.0)
        yield case("softcap, saturated", "softcap gradient", direct(setting, [6.0, 6.0], [1.0, 0.0], spec), 1.0)
        yield case("softcap, normal", "softcap gradient", setting.call(q * 3, k, v, spec))
    if setting.can("sink"):
        sink = rng.standard_normal(q.shape[1]).astype(setting.kind)
        yield case("sink", "sink", setting.call(q, k, v, sink=sink))
    if setting.can("dropout_mask"):
        drop = ((rng.random((*q.shape[:3], 7)) < 0.75) / 0.75).astype(setting.kind)
        yield case("dropout mask", "dropout", setting.call(q, k, v, dropout_mask=drop))
        call = direct(setting, [0.0], [1.0], dropout_mask=np.full((1, 1, 1, 1), 4 / 3).astype(setting.kind))
        yield case("one key kept of p = 1/4", "dropout", call, 1.0)
    if setting.group > 1:
        yield case("grouped heads", "GQA gradient", setting.call(*setting.normal(rng, 5, 7, 8, h=2)))
    if setting.can("lse"):
        call = direct(setting, [0.0, 0.0], [1.0, 0.0], lse=True)
        ones = np.ones(call.q.shape[:3]).astype(setting.kind)
        yield case("output plus log-sum-exp", "LSE gradient", call, 1.0, grad_lse=ones)
        call = setting.call(q, k, v, lse=True)
        both = rng.standard_normal(call.q.shape[:3]).astype(setting.kind)
        yield case("log-sum-exp, normal", "LSE gradient", call, grad_lse=both)


def _of_arguments(setting: Setting, rng: Generator, case: Callable[..., Case]) -> Iterator[Case]:
    """A scale of 0, above 1 and below 0, whatever was drawn before; a bias of every broadcast shape."""
    if setting.can("scale"):
        q, k, v = setting.normal(rng, 5, 7, 8)
        for scale in (4.0, -0.5, 0.0):
            call = setting.call(q / (abs(scale) or 1.0), k, v, setting.spec(scale=scale))
            yield case(f"scale {scale:g}", "gradient", call)
    if setting.can("bias"):
        q, k, v = setting.normal(rng, 3, 5, 4, b=1 if setting.profile.layout == "thd" else 2)
        for shape in shapes(len(q), q.shape[1], 3, 5):
            call = setting.call(q, k, v, bias=rng.standard_normal(shape))
            yield case(f"bias of {' × '.join(map(str, shape))}", "bias gradient", call)


def _of_scale(setting: Setting, rng: Generator, case: Callable[..., Case]) -> Iterator[Case]:
    """The scale as an array: beside every feature that acts between it and the weights, and over heads and items."""
    # Two keys by head, q·k = 1 and 0 and both scores near 0: p₀p₁ of each head. The roundings of scores weigh little
    # there, so that a misreading shows in 16 bits too.
    heads = 1 if setting.single else 2
    pair = [np.broadcast_to(x, (heads, *x.shape)) for x in (np.array([[1.0]]), np.array([[1.0], [0.0]]))]
    for changes in ({}, {"softcap": 0.0625}):
        if setting.can(*changes):
            call = setting.call(pair[0], pair[1], pair[1], setting.spec(scale=0.0625, **changes), scale_gradient=True)
            text = ", ".join(["scale, two keys", *changes])
            yield case(text, "scale gradient", call, 1.0)
    q, k, v = setting.normal(rng, 5, 5, 8, h=2, b=2)
    b, h = q.shape[:2]
    mask, bias = some(rng, b, h, 5, 5), rng.standard_normal((b, h, 5, 5))
    mask[..., 0] = True
    extra: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "": ({}, {}),
        " and a mask": ({}, {"mask": mask}),
        " and a bias": ({}, {"bias": bias}),
        " and causal": ({"causal": True}, {}),
        " and a softcap": ({"softcap": 2.0}, {}),
        " and a sink": ({}, {"sink": rng.standard_normal(h).astype(setting.kind)}),
    }
    for text, (changes, more) in extra.items():
        if setting.can(*changes, *more):
            call = setting.call(q, k, v, setting.spec(scale=0.3125, **changes), scale_gradient=True, **more)
            yield case(f"scale{text}", "scale gradient", call)
    if setting.can("lse"):
        call = setting.call(q, k, v, setting.spec(scale=0.3125), scale_gradient=True, lse=True)
        both = rng.standard_normal(call.q.shape[:3]).astype(setting.kind)
        yield case("scale through the log-sum-exp", "scale gradient", call, 0.0, grad_lse=both)


def gradient_findings(
    setting: Setting, plan: Any, ask: Ask, judge: Judge, reading: Reading, asked: dict[str, None], told: list[str]
) -> Iterator[tuple[Case, Violation, str]]:
    """(case, violation, diagnosis) for every gradient that is wrong. told: takes what could not be asked."""
    if "grad" not in setting.has:
        return
    rng = np.random.default_rng(plan.seed + 3)
    _second_opinion(setting, rng, judge, reading)
    scale = "not asked yet"
    for case in gradient_cases(setting, rng):
        if not setting.fits(case.call):
            continue
        if case.call.scale_gradient and scale == "not asked yet":
            scale = _lacks_scale(ask(case.call))
            if scale:
                told.append(f"gradient of scale: {scale}")
        if case.call.scale_gradient and scale:
            continue
        asked[case.about] = None
        reply = ask(case.call)
        if reply.fault == "raises" and reply.message.startswith("NotImplementedError"):
            continue
        found = metadata(case.call, reply)
        yield from ((case, violation, "") for violation in found)
        if reply.fault is None:
            yield from _compare(setting, case, reply, judge, reading)


def _lacks_scale(reply: Reply) -> str:
    """Why the target gives no gradient of its scale; "" if it does."""
    if reply.fault == "raises":
        return f"the target takes no array as its scale ({reply.message[:80]})"
    return "" if "scale" in reply.gradients else "the target gives none"


def _compare(
    setting: Setting, case: Case, reply: Reply, judge: Judge, reading: Reading
) -> Iterator[tuple[Case, Violation, str]]:
    call = case.call
    right = truth(call, reading)
    if right.outside.any():
        return
    known = gradients(call, judge, allowed(call, right, judge, reading), reading)
    for name, gradient in known.items():
        if name not in ("q", "k", "v") and (name not in setting.has or (name == "scale") != call.scale_gradient):
            continue
        got = reply.gradients.get(name)
        about = {"bias": "bias gradient", "scale": "scale gradient"}.get(name, case.about)
        named = Case(case.name, about, call)
        if got is None:
            text = f"no gradient of {name} came back: expected {expected_gradients(call)}"
            yield named, Violation("gradient", text, name=f"gradient of {name}"), ""
            continue
        if got.shape != gradient.mid.shape:
            text = f"the gradient of {name} has shape {got.shape}: expected {gradient.mid.shape}"
            yield named, Violation("shape", text, name=f"gradient of {name}"), ""
            continue
        judged = np.ones(got.shape, bool)
        found = worst(got, gradient.mid, gradient.radius, gradient.room, judged, f"gradient of {name}", {}, got.dtype)
        for violation in found:
            kind, text = name_gradient(call, name, got, gradient, judge, reading)
            yield Case(case.name, kind or about, call), violation, text


def name_gradient(
    call: Call, name: str, got: Array, right: Gradient, judge: Judge, reading: Reading
) -> tuple[str, str]:
    """(kind or "", text): what a wrong gradient equals, where that is known."""
    given = got.astype(np.float64)
    mid = right.mid.astype(np.float64)
    with np.errstate(all="ignore"):
        ratio = float(np.nanmax(np.abs(given - mid) / (right.room + 1e-300)))
    room = float(np.clip(ratio / 4, 0.25, 3)) * right.room + 1e-300
    if not np.isfinite(given).all():
        return "", ""
    scale = call.spec.scale_value(call.q.shape[3])
    if call.spec.rope is not None and name in ("q", "k"):
        offset = call.spec.rope.q_offset if name == "q" else call.spec.rope.k_offset
        for text, times in (("not rotated back", 1), ("rotated back the wrong way", 2)):
            turned = right.mid
            for _ in range(times):
                turned = rotated(turned, call, offset)
            if (np.abs(given - turned) <= 2 * np.sqrt(2) * room.max()).all():
                return "RoPE gradient", f"matches the gradient of the rotated array, {text}"
    group = call.q.shape[1] // max(call.k.shape[1], 1)
    if group > 1 and name in ("k", "v"):
        apart = call.with_(k=repeated(call.k, call.q.shape[1]), v=repeated(call.v, call.q.shape[1]))
        right_apart = truth(apart)
        each = gradients(apart, judge, allowed(apart, right_apart, judge))[name].mid[:, ::group]
        if (np.abs(given - each) <= room).all():
            return "GQA gradient", "matches the gradient of the first query head of each group, the others left out"
    factors = {
        "the gradient is zero": 0.0,
        "matches the right gradient with the wrong sign": -1.0,
        "matches the right gradient without the scale": 1 / scale if scale else 1.0,
        "matches the right gradient times the scale once more": scale,
        "matches half the right gradient": 0.5,
        "matches twice the right gradient": 2.0,
    }
    for text, factor in factors.items():
        apart = (np.abs(factor - 1) * np.abs(mid) > room).any()
        if apart and (np.abs(given - factor * mid) <= room * max(1.0, abs(factor))).all():
            return "", text
    for text, other in _misread(call):
        right_other = truth(other, reading)
        alternative = gradients(other, judge, allowed(other, right_other, judge, reading), reading).get(name)
        if alternative is not None and (np.abs(given - alternative.mid) <= room + alternative.room).all():
            return "", text
    if ratio < 16:
        return "", "close to the right gradient: consistent with coarser roundings than those allowed"
    return "", ""


def _misread(call: Call) -> Iterator[tuple[str, Call]]:
    if call.grad_lse is not None:
        yield "matches the gradient without the log-sum-exp's part", call.with_(grad_lse=None)
    if call.spec.causal != "none":
        yield "matches the gradient with causal ignored", call.with_(spec=call.spec.with_(causal="none"))
    if call.mask is not None:
        yield "matches the gradient with the mask ignored", call.with_(mask=None)


def _second_opinion(setting: Setting, rng: Generator, judge: Judge, reading: Reading) -> None:
    """The closed form against a complex step on one small call."""
    q, k, v = setting.normal(rng, 4, 4, 2, h=2)
    call = setting.call(q, k, v)
    call = call.with_(grad_output=rng.standard_normal((*call.q.shape[:3], 2)).astype(setting.kind))
    right = truth(call, reading)
    known = gradients(call, judge, allowed(call, right, judge, reading), reading)
    for name, index in (("q", (0, 0, 1, 1)), ("k", (0, 0, 2, 0)), ("v", (0, 0, 3, 1)), ("scale", ())):
        value = complex_step(call, name, index, reading)
        if abs(value - float(known[name].mid[index])) > 1e-13 * max(1.0, abs(value)):
            raise CheckersDisagree(f"gradient of {name} at {index}: closed form {known[name].mid[index]}, step {value}")
