"""What a new user meets first: wrong requests are refused, and a run that judged nothing never agrees."""

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verify
from verify import cli, errors
from verify.checking import judge as judging
from verify.checking.allowance import sensible
from verify.checking.calls import Call, Reply
from verify.checking.diagnose import Evidence, evidence
from verify.checking.judge import Plan, Session
from verify.checking.replay import replay_line
from verify.checking.result import GLOSSARY, CheckResult, Finding
from verify.checking.runner import MEMORY, TIMEOUT, Local
from verify.checking.specs import CONVENTIONS
from verify.checking.targets import _attribute
from verify.checking.values import answer, differences
from verify.errors import UsageError


def attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


class Attention:
    def __call__(self, q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / "t.py"
    path.write_text(
        "def attend(q, k, v):\n    return v\n\ndef other(q, k, v):\n    raise ValueError(1)\n\nclass Att:\n    pass\n"
    )
    return path


# -- nothing judged --------------------------------------------------------------------------------------------------


def test_a_budget_that_judges_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no input was judged"):
        verify.check(attention, quick=True, budget=1e-9)


def test_a_case_that_was_never_answered_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget ends between taking up the first case and its answer."""
    session = Session(Local(attention), "float64", Plan(quick=True, budget=1.0))
    monkeypatch.setattr(session, "_smoke_and_conventions", list)
    session.start -= 10
    with pytest.raises(UsageError, match="no input was judged"):
        session.run()


def test_a_target_that_refuses_every_case_is_not_judged() -> None:
    calls = []

    def shy(q: Any, k: Any, v: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise NotImplementedError("only once")
        return attention(q, k, v)

    result = verify.check(shy, quick=True)
    assert (result.cases, result.status, result.exit_code, result.ok) == (0, "not judged", errors.DIFFERS, False)
    assert "not judged: no input was judged" in result.text()
    assert result.to_json()["not_shown"][0] == "not judged: no input was judged"
    assert "<failure" in result.to_junit()


def test_a_result_without_cases_is_not_an_agreement() -> None:
    empty = CheckResult("f", "float64", "", 0)
    assert not empty.ok
    assert CheckResult("f", "float64", "", 0, cases=1).ok
    assert CheckResult("f", "float64", "", 0, cases=1, unmet=("gradients",)).status == "not judged"


# -- gradients asked for ---------------------------------------------------------------------------------------------


def test_gradients_of_a_function_that_gives_none_are_refused_before_judging() -> None:
    def never(q: Any, k: Any, v: Any) -> Any:
        raise AssertionError("it was asked")

    with pytest.raises(UsageError, match=r"--backward FUNCTION.*--like torch"):
        verify.check(never, grad=True)


def test_requests_that_would_be_passed_over_are_refused() -> None:
    with pytest.raises(UsageError, match="beside reference="):
        verify.check(attention, reference=attention, grad=True)
    with pytest.raises(UsageError, match="compile=True needs"):
        verify.check(attention, compile=True)


def test_gradients_that_are_all_refused_are_not_judged() -> None:
    def backward(q: Any, k: Any, v: Any, grad_output: Any) -> Any:
        raise NotImplementedError("later")

    result = verify.check(attention, backward=backward, grad=True, quick=True)
    assert result.status == "not judged"
    assert "gradients were asked for" in result.text()


# -- the wrong kind of target ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "message", "wanted"),
    [
        ("raises", "TypeError: argument 'query' must be Tensor, not numpy.ndarray", "try --like torch"),
        ("type", "returned torch.Tensor: expected an array of numpy", "try --like torch"),
        ("raises", "TypeError: jax arrays only", "try --like jax"),
        ("raises", "AttributeError: 'numpy.ndarray' object has no attribute 'softmax'", "try --like torch or"),
    ],
)
def test_a_target_of_another_library_is_told_so(fault: str, message: str, wanted: str) -> None:
    reply = Reply(fault=fault, message=message)
    assert wanted in judging.library_hint(reply, "numpy")
    assert judging.library_hint(reply, "torch") == ""
    assert judging.library_hint(Reply(fault="raises", message="ValueError: no luck"), "numpy") == ""


def test_the_hint_stands_in_the_finding() -> None:
    def wants_tensors(q: Any, k: Any, v: Any) -> Any:
        raise TypeError("argument 'query' must be Tensor, not numpy.ndarray")

    result = verify.check(wants_tensors, quick=True)
    assert "try --like torch" in result.findings[0].diagnosis


def test_a_class_is_no_target(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="Attention is a class: expected a function or an instance"):
        verify.check(Attention)
    assert verify.check(Attention(), quick=True).ok
    assert cli.main(["check", f"{here}:Att"]) == errors.USAGE
    assert "Att is a class" in capsys.readouterr().err


@pytest.mark.parametrize("target", [3, None, [attention]])
def test_what_is_neither_function_nor_text_is_refused(target: Any, attention_check: Any) -> None:
    for check in (verify.check, attention_check):
        with pytest.raises(UsageError, match=f"target is {type(target).__name__}: expected a function, or text as"):
            check(target)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "cuda"], "--device cuda"),
        (["--memory", "0"], "--memory"),
        (["--memory", "nan"], "--memory"),
        (["--timeout", "0"], "--timeout"),
        (["--seed", "-1"], "seed"),
    ],
)
def test_options_that_make_no_sense(
    here: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", f"{here}:attend", *words]) == errors.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"seed": -1}, {"seed": 1.5}, {"timeout": 0}, {"memory": 0}, {"budget": 0}])
def test_the_same_from_python(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        verify.check(attention, quick=True, **options)


def test_an_unknown_function_lists_near_ones_and_counts() -> None:
    module = types.SimpleNamespace(attend=attention, other=attention)
    with pytest.raises(UsageError, match=r"no function 'atend' there; did you mean attend\? 2 callables found"):
        _attribute(module, "atend", "t.py:atend")
    with pytest.raises(UsageError, match=r"2 callables found there: attend, other"):
        _attribute(module, "zzz", "t.py:zzz")


# -- replay ----------------------------------------------------------------------------------------------------------


def test_a_replay_carries_all_that_was_given(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "check", f"{here}:other", "--quick", "--timeout", "9", "--memory", "3", "--dtype", "float32", "--budget", "50",
        "--seed", "7", "--algorithm", "flash:block=128", "--spec", "causal=top-left",
    ]  # fmt: skip
    cli.main(words)
    out = capsys.readouterr().out
    line = next(text for text in out.splitlines() if text.startswith("  replay"))
    for word in ("--timeout 9", "--memory 3", "--dtype float32", "--budget 50", "--seed 7", "flash:block=128",
                 "--quick", "--spec causal=top-left"):  # fmt: skip
        assert word in line


def test_a_replay_leaves_out_what_is_the_default_and_quotes() -> None:
    given = {"timeout": TIMEOUT, "memory": MEMORY, "layout": "thd", "arg": {"mask": "m"}, "backward": "back"}
    line = replay_line("a b.py:f", ["float64"], {"window": (3, 0)}, 0, given)
    assert line == (
        "attnproof check 'a b.py:f' --dtype float64 --layout thd --arg mask=m --backward back"
        " --seed 0 --spec window=3,0"
    )
    assert "timeout=5.0" in replay_line("", ["float64"], None, 0, {"timeout": 5.0})


def test_a_shape_that_is_wrong_has_no_place() -> None:
    q = np.zeros((2, 3))
    with pytest.raises(AssertionError) as caught:
        verify.assert_attention(np.zeros((1, 3)), q, q, q)
    assert "expected (2, 3)" in str(caught.value)
    assert " at ()" not in str(caught.value)


# -- findings of one root cause --------------------------------------------------------------------------------------


def no_scale(q: Any, k: Any, v: Any) -> Any:
    return attention(q * q.dtype.type(q.shape[-1] ** 0.5), k, v)


def over_queries(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    e = np.exp(s - s.max(-2, keepdims=True, initial=-np.inf))
    return e / e.sum(-2, keepdims=True) @ v


@pytest.fixture(scope="module")
def unscaled() -> CheckResult:
    return verify.check(no_scale, quick=True)


@pytest.fixture(scope="module")
def transposed() -> CheckResult:
    return verify.check(over_queries, quick=True)


def test_a_missing_scale_is_one_fault(unscaled: CheckResult) -> None:
    """No case's topic is taken for a fault, and no float16 accumulator is seen in a float64 function."""
    assert unscaled.kinds[0] == "scale"
    values = [f for f in unscaled.findings if f.rule == "values"]
    assert {f.diagnosis for f in values} == {"matches softmax without a scale"}
    assert "accumul" not in unscaled.text()


def test_findings_of_one_diagnosis_are_shown_once(unscaled: CheckResult) -> None:
    text = unscaled.text()
    assert len([f for f in unscaled.findings if f.diagnosis == "matches softmax without a scale"]) > 1
    assert text.count("matches softmax without a scale") == 1
    assert "  also seen in: " in text
    assert "q strided in memory" in text.split("also seen in: ")[1].splitlines()[0]
    assert "PROVED WRONG: strides" not in text
    assert len(unscaled.to_json()["findings"]) == len(unscaled.findings)
    assert "about" not in unscaled.to_json()["findings"][0]


def test_a_diagnosis_that_another_failing_case_refutes_is_not_given(transposed: CheckResult) -> None:
    """Softmax over the queries looks like a wrong layout on the case of differing heads alone."""
    assert {f.diagnosis for f in transposed.findings if f.rule == "values"} == {"matches softmax over the queries"}
    assert transposed.kinds[0] == "softmax axis"


def test_refuted_diagnoses_give_way() -> None:
    """Of two misreadings that fit a case, the one that no failing case refutes is given; without one, none."""
    session = Session(Local(attention), "float64", Plan(quick=True))
    both = Evidence((("layout", "A"), ("softmax axis", "B")))
    alone = Evidence((("layout", "A"),))
    session.findings = [
        Finding("proved wrong", "layout", "values", "", diagnosis="A"),
        Finding("proved wrong", "layout", "values", "", diagnosis="A"),
        Finding("proved wrong", "sink", "values", "", diagnosis="of another source"),
    ]
    session._grounds = [(both, "strides"), (alone, "values"), (Evidence(), "sink")]
    session._evidence = [both, alone, Evidence(refuted=frozenset({"A"}))]
    session._agree_on_diagnoses()
    assert [(f.kind, f.diagnosis) for f in session.findings] == [
        ("strides", "B"), ("values", ""), ("sink", "of another source"),
    ]  # fmt: skip


def test_an_accumulator_is_named_where_the_dtype_allows_it() -> None:
    """2049 ones summed in float16 stick at 2048: named in float16, impossible in float64."""
    m = 4100
    values = np.where(np.arange(m) % 2 == 0, 1.0, 0.5)
    stuck = float(values.sum() / 2048)
    for dtype, named in (("float16", True), ("float64", False)):
        q, k, v = (np.asarray(x, dtype)[None, None] for x in (np.zeros((1, 1)), np.zeros((m, 1)), values[:, None]))
        call = Call(q, k, v)
        known = answer(call, sensible(dtype))
        reply = Reply(output=np.full((1, 1, 1, 1), stuck, dtype))
        found = evidence(call, reply, known, differences(call, reply, known)[0])
        assert ("fp16 accumulation" in {kind for kind, _ in found.fits}) is named


def test_a_heading_says_what_is_wrong_not_what_the_case_was_made_for() -> None:
    topic = Finding("proved wrong", "strides", "values", "m", case="q strided", about="strides")
    assert topic.text().startswith("PROVED WRONG: values differ, case 'q strided': m")
    named = Finding("proved wrong", "scale", "values", "m", case="q strided", about="strides")
    assert named.text().startswith("PROVED WRONG: scale: m")


# -- words -----------------------------------------------------------------------------------------------------------


def test_conventions_are_explained_in_words(unscaled: CheckResult) -> None:
    text = unscaled.text()
    assert "in words: no keys: what the output is when there is no key at all" in text
    shown = {c.name.split(" ")[0] for c in unscaled.conventions}
    assert "deterministic" in shown
    assert set(CONVENTIONS) - {"mask"} <= set(GLOSSARY)  # what a mask means is declared, never probed


def test_a_limit_of_the_tool_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from verify.checking import statistics

    session = Session(Local(attention), "float64", Plan(quick=True))
    arguments = (session.setting, session.plan, session.ask, session.judge, session.reading)
    found, figures, said = statistics.suspicious(*arguments)
    assert (found, len(figures)) == ([], 4)
    monkeypatch.setattr(statistics, "extended", lambda dtype: None)  # as where long double is double
    found, figures, said = statistics.suspicious(*arguments)
    assert (found, figures) == ([], {})
    limit = "statistics of error: a limit of this tool, not of the target: "
    assert said == [f"{limit}no format beyond float64 on this machine"]


def test_a_dtype_the_library_lacks_is_not_judged_beside_others() -> None:
    def narrow(q: Any, k: Any, v: Any) -> Any:
        if q.dtype == "bfloat16":
            raise TypeError("invalid data type for einsum")
        return attention(q, k, v)

    beside = verify.check(narrow, dtype=["float32", "bfloat16"], quick=True)
    assert (beside.status, beside.findings, beside.exit_code) == ("not judged", (), errors.DIFFERS)
    assert (
        "not judged: bfloat16 is not supported by the target (TypeError: invalid data type for einsum)" in beside.text()
    )
    alone = verify.check(narrow, dtype="bfloat16", quick=True)
    assert alone.findings[0].rule == "raises"


def test_another_type_error_is_no_lack_of_a_dtype() -> None:
    for message, lacking in {
        "TypeError: data type 'bfloat16' not understood": True,
        "RuntimeError: \"softmax\" not implemented for 'Half' dtype": True,
        "TypeError: f() takes 2 arguments": False,
        "ValueError: dtype": False,
    }.items():
        assert judging.lacks_dtype(Reply(fault="raises", message=message), "bfloat16") is lacking
