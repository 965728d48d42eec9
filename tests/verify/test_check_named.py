"""Diagnoses of kernels in tiles: each fault is named for what it is, or not at all; a correct kernel agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verify
from compute.spec import Spec
from tests.verify.tiled import flash
from verify import cli, errors
from verify.checking import ledger
from verify.checking.allowance import sensible
from verify.checking.calls import Call, Reply
from verify.checking.diagnose import FLOAT32, evidence
from verify.checking.judge import Plan, Session
from verify.checking.result import CheckResult
from verify.checking.runner import Local
from verify.checking.values import answer, differences, overshoot
from verify.checking.wording import KINDS
from verify.errors import UsageError


def checked(corner: str | None = "causal=bottom-right", dtype: Any = "float16", **fault: Any) -> CheckResult:
    def kernel(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
        return flash(q, k, v, causal, **fault)

    return verify.check(kernel, dtype=dtype, spec=corner, quick=True)


def whole(q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False, scale: float | None = None,
          start: float = -np.inf, narrow_sum: bool = False) -> Any:  # fmt: skip
    """Attention at once, in float32. start: a running maximum's first value. narrow_sum: a row sum in float16."""
    s = q.astype(np.float32) @ k.astype(np.float32).swapaxes(-1, -2)
    s = s * np.float32(q.shape[-1] ** -0.5 if scale is None else scale)
    n, m = s.shape[-2:]
    s = np.where(np.arange(m) <= np.arange(n)[:, None] + m - n, s, np.float32(-np.inf)) if causal else s
    s = s if mask is None else np.where(mask, s, np.float32(-np.inf))
    top = np.maximum(s.max(-1, keepdims=True), np.float32(start))
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = np.zeros_like(top)
    for j in range(0, m, 64):
        total = total + e[..., j : j + 64].sum(-1, keepdims=True)
        total = total.astype(np.float16).astype(np.float32) if narrow_sum else total
    return (e @ v.astype(np.float32) / np.where(total > 0, total, 1)).astype(q.dtype)


def diagnoses(result: CheckResult) -> set[str]:
    return {f.diagnosis for f in result.findings} - {""}


@pytest.mark.parametrize("block", [16, 32, 64])
def test_correct_tiles_agree(block: int) -> None:
    assert checked(block=block).status == "agrees"


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize(
    ("rescale", "said"),
    [
        ("sum", "whose output is not rescaled when the running maximum rises"),
        ("output", "whose sum of weights is not rescaled when the running maximum rises"),
        ("stale", "rescaled by a stale factor: that of the tile before"),
    ],
)
def test_a_missing_or_stale_rescale_is_named(rescale: str, said: str, block: int) -> None:
    result = checked(rescale=rescale, block=block)
    assert result.kinds[0] == "tile max" or rescale == "stale"
    assert f"matches tiles {said}" in diagnoses(result)


def test_keys_of_one_head_for_all_are_named() -> None:
    result = checked(one_head=True)
    assert diagnoses(result) == {"matches every head reading head 0's keys"}
    assert result.kinds[0] == "layout"


def test_values_one_key_late_are_named_and_no_accumulator_is() -> None:
    result = checked(rolled=True)
    assert result.findings[0].diagnosis == "matches keys and values one place apart: key j weighs value j - 1"
    assert "accumulator" not in result.text()


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_a_causal_tile_skipped_too_early_is_no_missing_softmax(block: int) -> None:
    """Where q = k = 0 and the output is 0, the output is also scores times V: that says nothing."""
    result = checked(early=1, block=block)
    assert result.status == "differs"
    assert "without softmax" not in result.text()
    assert "softmax missing" not in result.kinds
    assert diagnoses(result) <= {"the output is all zero", "matches causal tiles skipped one key too early"}


def test_what_gives_zero_everywhere_is_no_likeness() -> None:
    zeros, v = np.zeros((1, 1, 3, 2), np.float16), np.full((1, 1, 3, 2), 2, np.float16)
    call = Call(zeros, zeros, v)
    known, reply = answer(call, sensible("float16")), Reply(output=np.zeros_like(v))
    found = evidence(call, reply, known, differences(call, reply, known)[0])
    assert {text for _, text in found.fits} == {"the output is all zero"}


@pytest.mark.parametrize("start", [-1e4, -1e3])
def test_a_running_maximum_that_starts_too_high_is_no_imitated_mask(start: float) -> None:
    def kernel(q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False, scale: float | None = None) -> Any:
        return whole(q, k, v, mask=mask, causal=causal, scale=scale, start=start)

    result = verify.check(kernel, dtype="float16", spec="causal=bottom-right", quick=True)
    assert result.status == "differs"
    shown = [f for f in result.findings if "mask" in f.diagnosis]
    assert [f.diagnosis for f in shown if "mask" not in f.smallest] == []


def test_a_narrow_sum_is_no_fault_of_features_that_meet() -> None:
    def kernel(q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False, scale: float | None = None) -> Any:
        return whole(q, k, v, mask=mask, causal=causal, scale=scale, narrow_sum=True)

    result = verify.check(kernel, dtype="float16", spec="causal=bottom-right")
    assert not result.ok
    assert not [f for f in result.findings if "meet" in f.diagnosis or "together" in f.kind], result.text()


@pytest.mark.parametrize(("without", "clear"), [((0.9, 0.01), False), ((0.01, 0.02), True)])
def test_features_are_needed_where_the_error_falls_clearly(
    without: tuple[float, float], clear: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of 1.03 times what is allowed falls below it by chance."""
    session = Session(Local(whole), "float16", Plan(quick=True))
    q = np.ones((1, 1, 2, 2), np.float16)
    call = Call(q, q, q, Spec(causal="top-left", scale=0.5))
    ratios = {("top-left", 0.5): 1.03, ("none", 0.5): without[0], ("top-left", None): without[1]}
    monkeypatch.setattr(ledger, "overshoot", lambda one, reply, known: ratios[one.spec.causal, one.spec.scale])
    assert session._clearly(call, ("causal", "scale")) is clear


def test_features_that_meet_are_still_told() -> None:
    def kernel(q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None) -> Any:
        out = whole(q, k, v, causal=causal, scale=scale)
        return out * q.dtype.type(1.5) if causal and scale is not None else out

    result = verify.check(kernel, dtype="float16", spec="causal=bottom-right", quick=True)
    assert any("causal and scale" in (f.diagnosis or f.case) for f in result.findings), result.text()


def test_the_overshoot_is_told_below_one_too() -> None:
    q = np.ones((1, 1, 1, 2))
    call = Call(q, q, q)
    known = answer(call, sensible("float64"))
    room = float(known.allowed.total.max())
    assert overshoot(call, Reply(output=q), known) == 0
    assert overshoot(call, Reply(output=q + 4 * room), known) > 3
    assert 0 < overshoot(call, Reply(output=q + 2.0**-52), known) < 1


# -- the causal corner ------------------------------------------------------------------------------------------------


def test_causal_with_other_lengths_is_judged_by_the_corner_that_was_met() -> None:
    def kernel(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
        out = flash(q, k, v, causal)
        return out * out.dtype.type(1.5) if causal and (q.shape[2], k.shape[2]) == (3, 5) else out

    result = verify.check(kernel, dtype="float16", quick=True)
    assert [f.case for f in result.findings] == ["causal, 3 queries, 5 keys"]
    good = checked(None)
    assert good.status == "agrees"
    assert "causal=bottom-right, if meant" in good.text()
    assert "causal with n_q != n_k: no corner is declared" not in good.text()


def test_the_status_says_where_no_corner_was_met() -> None:
    def kernel(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
        return flash(q, k, v, causal and q.shape[2] == k.shape[2])

    result = verify.check(kernel, dtype="float16", quick=True)
    assert result.ok
    first = result.text().splitlines()[0]
    assert "agrees, except that n ≠ m with causal was not judged: declare --spec causal=top-left" in first


@pytest.mark.parametrize("declared", [None, "causal=bottom-right"])
def test_an_assertion_names_the_corner(declared: str | None) -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, 1, n, 4)).astype(np.float32) for n in (3, 5, 5))
    out = flash(q, k, v, True)
    if declared:
        verify.assert_attention(out, q, k, v, causal=True, spec=declared)
        return
    with pytest.raises(AssertionError, match=r"top-left corner .*give spec='causal=bottom-right'"):
        verify.assert_attention(out, q, k, v, causal=True)
    with pytest.raises(AssertionError) as square:
        verify.assert_attention(2 * v, v, k, v, causal=True)
    assert "corner" not in str(square.value)


# -- float32 arithmetic under float64 ---------------------------------------------------------------------------------


def test_float32_arithmetic_is_named_where_float64_was_asked() -> None:
    result = checked(dtype="float64")
    assert {f.diagnosis for f in result.findings if f.verdict == "proved wrong"} == {FLOAT32}
    assert checked(dtype="float32").ok

    def kernel(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
        return flash(q, k, v, causal)

    declared = verify.check(kernel, spec="causal=bottom-right", quick=True,
                            algorithm="eager:accumulate=fp32,output=fp32")  # fmt: skip
    assert declared.ok, "the mend that the diagnosis names must do"


def test_a_sharper_fault_comes_before_float32_arithmetic() -> None:
    def kernel(q: Any, k: Any, v: Any) -> Any:
        return flash(q.astype(np.float32) * np.float32(q.shape[-1] ** 0.5), k, v)

    result = verify.check(kernel, quick=True)
    assert result.findings[0].diagnosis == "matches softmax without a scale"
    assert [f.diagnosis for f in result.findings if f.verdict == "proved wrong"][-1] == FLOAT32


def test_a_fault_in_float64_is_not_taken_for_float32() -> None:
    def kernel(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.swapaxes(-1, -2)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    assert diagnoses(verify.check(kernel, quick=True)) == {"matches softmax without a scale"}


# -- words and arguments ----------------------------------------------------------------------------------------------


def test_a_kind_that_a_finding_names_was_asked() -> None:
    for result in (checked(rescale="sum"), checked(rolled=True), checked(one_head=True)):
        blind = next(text for text in result.not_shown if text.startswith("no input was about: "))
        named = set(result.kinds) & set(KINDS)
        assert named
        assert not named & set(blind.removeprefix("no input was about: ").split(", "))
        assert named <= set(result.asked)


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), [np.float16], "fp16"])
def test_a_dtype_may_be_numpys(dtype: Any) -> None:
    result = verify.check(whole, dtype=dtype, quick=True, first=True)
    assert result.dtype == "float16"


@pytest.mark.parametrize("dtype", [np.int32, object(), []])
def test_another_dtype_is_refused_in_words(dtype: Any) -> None:
    with pytest.raises(UsageError, match=r"dtype .*expected one of float64, float32, float16, bfloat16"):
        verify.check(whole, dtype=dtype, quick=True)


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "k.py"
    path.write_text(
        "import numpy as np\n\n\n"
        "def attend(q, k, v):\n"
        "    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5\n"
        "    p = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))\n"
        "    return p / p.sum(-1, keepdims=True) @ v\n"
    )
    return path


def test_a_file_without_a_function_names_its_functions(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(kernels)]) == errors.USAGE
    said = capsys.readouterr().err
    assert "expected FILE.py:FUNCTION" in said
    assert "k.py:attend (found there: attend)" in said
    assert "did you mean" not in said


@pytest.mark.parametrize("given", ["k.py:grads", "grads"])
def test_a_backward_that_is_not_there_is_named(kernels: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", f"{kernels}:attend", "--quick", "--backward", given]) == errors.USAGE
    said = capsys.readouterr().err
    assert f"--backward '{given}'" in said
    assert "beside" in said


def test_a_target_after_the_words_of_spec_is_found(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--quick", "--spec", "empty-row=zero", f"{kernels}:attend"]) == errors.AGREES
    assert f"{kernels}:attend: agrees" in capsys.readouterr().out
    assert cli.main(["check", "--quick", "--spec", "empty-row=zero"]) == errors.USAGE
    assert "no target" in capsys.readouterr().err
