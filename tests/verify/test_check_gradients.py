"""Gradients of the scale and under RoPE, and the backward pass asked twice: right ones pass, and each is judged."""

import warnings
from typing import Any

import numpy as np
import pytest

import tests.verify.faulty_gradients as gradients
import verify
from verify.checking.calls import Call
from verify.checking.cases import Setting, as_features
from verify.checking.gradients import gradient_cases
from verify.checking.judge import Plan, Session
from verify.checking.rotary import pair_sums, rotated
from verify.checking.runner import Local
from verify.checking.specs import parse_spec
from verify.checking.vjp import complex_step

DTYPES = ("float64", "float32", "float16", "bfloat16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_gradient_of_the_scale_passes(dtype: str) -> None:
    result = verify.check(gradients.scaled_forward, backward=gradients.scaled_backward, dtype=dtype, quick=True)
    assert result.ok, result.text()
    assert "scale gradient" in result.asked
    assert not any("gradient of scale" in text for text in result.not_shown)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_gradient_under_rope_passes(dtype: str) -> None:
    run, spec = gradients.turned_forward, "rope=half"
    result = verify.check(run, backward=gradients.turned_backward, spec=spec, dtype=dtype, quick=True)
    assert result.ok, result.text()
    assert "RoPE gradient" in result.asked
    assert result.conventions[-1].name == "deterministic (gradients)"
    assert result.conventions[-1].met == "yes"


def test_an_order_by_chance_is_named_and_not_failed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = verify.check(gradients.plain_forward, backward=gradients.tiled_backward, dtype="float32", quick=True)
    assert result.ok, result.text()
    assert {c.name: c.met for c in result.conventions}["deterministic (gradient of q)"] == "no"


def test_a_target_without_a_gradient_of_its_scale_is_told_so() -> None:
    def backward(q: Any, k: Any, v: Any, g: Any, **more: Any) -> Any:
        found = gradients.scaled_backward(q, k, v, g, **more)
        return {name: x for name, x in found.items() if name != "scale"}

    result = verify.check(gradients.scaled_forward, backward=backward, dtype="float64", quick=True)
    assert result.ok, result.text()
    assert "gradient of scale: the target gives none" in result.not_shown


@pytest.mark.parametrize("name", ["not rotated back", "rotated on"])
def test_a_rotation_left_out_is_named(name: str) -> None:
    def backward(q: Any, k: Any, v: Any, g: Any, **more: Any) -> Any:
        return gradients.turned_backward(q, k, v, g, wrong=name, **more)

    result = verify.check(gradients.turned_forward, backward=backward, spec="rope=half", dtype="float64", quick=True)
    assert any("matches the gradient of the rotated array" in f.diagnosis for f in result.findings), result.text()


def test_the_closed_forms_against_a_complex_step() -> None:
    """The scale and both arrays under RoPE, entry by entry, in every case that a check asks."""
    from verify.checking.allowance import allowed, sensible
    from verify.checking.reference import truth
    from verify.checking.vjp import gradients as closed

    judge, rng, seen = sensible("float64"), np.random.default_rng(1), 0
    for run, spec, back in (
        (gradients.turned_forward, "rope=half", gradients.turned_backward),
        (gradients.turned_forward, "rope=interleaved", gradients.turned_backward),
        (gradients.scaled_forward, None, gradients.scaled_backward),
    ):
        declared = parse_spec(spec)
        profile = Local(run, backward=back).profile
        setting = Setting(profile, declared, "float64", as_features(profile, declared))
        for case in gradient_cases(setting, rng):
            call = case.call
            if not setting.fits(call) or call.k.shape[2] > 80 or ("RoPE" not in case.about and rng.random() < 0.7):
                continue
            right = truth(call)
            if right.outside.any() or call.grad_lse is not None:
                continue
            known = closed(call, judge, allowed(call, right, judge))
            for name in ("q", "k", "scale"):
                mid = known[name].mid
                index = tuple(int(i) for i in rng.integers(0, mid.shape)) if mid.ndim else ()
                step = complex_step(call, name, index)
                assert abs(step - float(mid[index])) <= 1e-12 * max(1.0, abs(step)), (spec, case.name, name)
                seen += 1
    assert seen > 60


def test_a_rotation_and_its_transpose() -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 1, 5, 6))
    for spec in ("rope=half", "rope=interleaved"):
        call = Call(q, q, q, parse_spec(spec).spec)
        again = rotated(rotated(q, call, 7), call, 7, back=True)
        assert np.abs(again - q).max() < 1e-17
        assert (np.abs(rotated(q, call, 7)) <= pair_sums(q, call)).all()


def test_the_questions_of_a_run_hold_an_array_for_the_scale() -> None:
    session = Session(Local(gradients.scaled_forward, backward=gradients.scaled_backward), "float32", Plan(quick=True))
    calls = [c.call for c in gradient_cases(session.setting, np.random.default_rng(3))]
    assert sum(call.scale_gradient for call in calls) >= 4


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_a_scale_of_torch() -> None:
    import torch

    def with_torch(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        return torch.softmax((q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale), -1) @ v

    def detached(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        return with_torch(q, k, v, scale=scale if scale is None else torch.as_tensor(scale).detach())

    result = verify.check(with_torch, like="torch", dtype="float32", grad=True, quick=True)
    assert result.ok, result.text()
    assert "scale gradient" in result.asked
    told = verify.check(detached, like="torch", dtype="float32", grad=True, quick=True)
    assert told.ok, told.text()
    assert "gradient of scale: the target gives none" in told.not_shown

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, scale: Any) -> Any:
            return scale.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return 2 * gradient

    def wrong(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        return with_torch(q, k, v, scale=Doubled.apply(scale) if isinstance(scale, torch.Tensor) else scale)

    found = verify.check(wrong, like="torch", dtype="float32", grad=True, quick=True)
    assert found.kinds == ("scale gradient",)
    assert "twice" in found.findings[0].diagnosis


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_a_scale_of_jax() -> None:
    """One call each way, since every shape is compiled anew."""
    import jax

    from verify.checking.allowance import allowed, sensible
    from verify.checking.reference import truth
    from verify.checking.vjp import gradients as closed

    def run(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        return jax.nn.softmax((q @ k.swapaxes(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale), -1) @ v

    def number(q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
        return run(q, k, v, scale=None if scale is None else float(scale))

    subject, judge = Local(run, like="jax"), sensible("float32")
    session = Session(subject, "float32", Plan(gradients=True, quick=True))
    call = next(c.call for c in gradient_cases(session.setting, np.random.default_rng(3)) if c.call.scale_gradient)
    known = closed(call, judge, allowed(call, truth(call), judge))
    reply = subject.ask(call)
    for name in ("q", "k", "v", "scale"):
        off = np.abs(reply.gradients[name].astype(np.longdouble) - known[name].mid)
        assert (off <= known[name].room + known[name].radius).all(), name
    refused = Local(number, like="jax").ask(call)
    assert refused.fault == "raises"
