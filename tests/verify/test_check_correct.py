"""Correct implementations are not called wrong, and what they leave open is named, not failed."""

import warnings

import numpy as np
import pytest

import verify
from tests.verify.correct import CORRECT
from verify.checking.gradients import gradient_cases
from verify.checking.judge import Session
from verify.checking.reference import truth
from verify.checking.runner import Local
from verify.peers import own
from verify.strategies import designed_inputs


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_implementation_agrees(name: str, dtype: str) -> None:
    function, spec = CORRECT[name]
    if dtype == "float64" and name not in ("plain", "tiled"):
        pytest.skip("in float64 two stand for all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = verify.check(function, spec=spec, dtype=dtype, quick=True)
    assert result.ok, result.text()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("spec", [None, "groups=2"])
def test_compute_agrees_with_gradients(dtype: str, spec: str | None) -> None:
    result = verify.check(own.attention, backward=own.backward, dtype=dtype, spec=spec, quick=True)
    assert result.ok, result.text()
    assert result.cases > 100


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_certificates_of_compute_meet_the_reference(dtype: str) -> None:
    """Two enclosures of one number, made by code that shares nothing, must overlap."""
    import compute

    seen = 0
    for case in designed_inputs(dtype, spec="causal=bottom-right"):
        call = case.call
        b, h, _, n, m, _, _ = call.shape
        if b * h * n * m > 5000 or m == 0 or n == 0:
            continue
        right = truth(call)
        more = {name: getattr(call, name) for name in ("mask", "bias") if getattr(call, name) is not None}
        found = compute.certify(call.q, call.k, call.v, call.spec, **more).output
        gap = np.abs(np.asarray(found.mid, np.longdouble) - right.output)
        room = np.asarray(found.rad, np.longdouble) + right.radius
        assert (gap <= room)[~right.empty].all(), case.name
        seen += 1
    assert seen > 80


def test_the_closed_form_of_gradients_against_a_complex_step() -> None:
    from verify.checking.allowance import allowed, sensible
    from verify.checking.specs import parse_spec
    from verify.checking.vjp import complex_step, gradients

    subject = Local(own.attention, backward=own.backward)
    from verify.checking.cases import Setting, as_features

    declared = parse_spec("groups=2")
    setting = Setting(subject.profile, declared, "float64", as_features(subject.profile, declared))
    judge, rng, seen = sensible("float64"), np.random.default_rng(1), 0
    for case in gradient_cases(setting, rng):
        call = case.call
        if not setting.fits(call) or call.q.size > 400 or call.grad_lse is not None or call.grad_output is None:
            continue
        right = truth(call)
        known = gradients(call, judge, allowed(call, right, judge))
        for name, gradient in known.items():
            index = tuple(int(i) for i in rng.integers(0, gradient.mid.shape))
            step = complex_step(call, name, index)
            assert abs(step - float(gradient.mid[index])) <= 1e-12 * max(1.0, abs(step)), (case.name, name)
            seen += 1
    assert seen > 60


def test_conventions_are_named() -> None:
    result = verify.check(own.attention, dtype="float32", quick=True)
    met = {c.name: c.met for c in result.conventions}
    assert met["causal"] == "top-left"
    assert met["empty-row by mask"] == "zero"
    assert met["window-ends"] == "inclusive"
    assert met["softcap-order"] == "before"
    assert met["alibi-ahead"] == "rising"
    assert met["lse-base"] == "e"
    assert met["empty-lse"] == "-inf"
    assert met["behind-mask (NaN in a value)"] == "inert"
    assert any("is the causal corner that is meant" in text for text in result.not_shown)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("causal=bottom-right", "causal alignment"), ("empty-row=mean", "empty row"), ("window-ends=exclusive", "window"),
     ("alibi-ahead=distance", "ALiBi"), ("softcap-order=after", "softcap order"),
     ("lse-base=2", "LSE base"), ("empty-lse=+inf", "LSE of empty")],
)  # fmt: skip
def test_a_declared_convention_must_be_met(spec: str, kind: str) -> None:
    result = verify.check(own.attention, dtype="float64", spec=spec, quick=True)
    assert not result.ok
    assert kind in result.kinds


def test_undeclared_conventions_are_adopted() -> None:
    """Tiled groups, exclusive windows, base 2, softcap last: named, and the rest judged by them."""

    def other(q, k, v, *, window=None, softcap=None, bias=None, return_lse=False):  # type: ignore[no-untyped-def]
        g = q.shape[1] // k.shape[1]
        k, v = np.tile(k, (1, g, 1, 1)), np.tile(v, (1, g, 1, 1))
        s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        if bias is not None:
            s = s + bias
        if softcap is not None:
            s = softcap * np.tanh(s / softcap)
        if bias is not None:
            s = np.where(np.isneginf(bias), -np.inf, s)
        n, m = s.shape[-2:]
        i, j = np.arange(n)[:, None], np.arange(m)
        if window is not None:
            left, right = (w - 1 if w else w for w in window)
            keep = (j >= i - (n + m if left is None else left)) & (j <= i + (n + m if right is None else right))
            s = np.where(keep, s, -np.inf)
        top = s.max(-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        out = e @ v / np.where(total > 0, total, 1)
        with np.errstate(divide="ignore"):
            lse = (np.log(total) + top)[..., 0] / np.log(2)
        return (out, lse) if return_lse else out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = verify.check(other, spec="groups=2", dtype="float64", quick=True)
    assert result.ok, result.text()
    met = {c.name: c.met for c in result.conventions}
    assert met["group-order"] == "tiled"
    assert met["window-ends"] == "exclusive"
    assert met["softcap-order"] == "after"
    assert met["lse-base"] == "2"


def test_a_finite_fill_is_named_not_failed() -> None:
    """np.where(mask, s, -1e9): right for every score that occurs; what it does beside lower scores is named."""

    def filled(q, k, v, *, mask=None):  # type: ignore[no-untyped-def]
        s = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
        s = s if mask is None else np.where(mask, s, s.dtype.type(-1e9))
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    result = verify.check(filled, dtype="float32", quick=True)
    assert result.ok, result.text()
    met = {c.name: c.met for c in result.conventions}
    assert met["empty-row by mask"] == "mean"
    assert "outweigh" in met["masking, beside a score of -1.72e+10"]


def test_the_questions_depend_on_the_seed_alone() -> None:
    from verify.checking.judge import Plan

    subject = Local(own.attention)
    calls = [[c.call.q.tobytes() for c in Session(subject, "float32", Plan(seed=seed))._cases()] for seed in (3, 3, 4)]
    assert calls[0] == calls[1]
    assert calls[0] != calls[2]
