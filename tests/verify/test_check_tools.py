"""The tools beside a check: scale audit, custom references, the pytest fixture, strategies, what is not touched."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import verify
from verify.checking.audit import scale_audit
from verify.checking.specs import parse_spec, spec_from_json, spec_to_json
from verify.errors import UsageError
from verify.strategies import attention_inputs, designed_inputs


@pytest.mark.parametrize(
    ("factor", "name"),
    [(32**-0.5, "1/sqrt(d_k)"), (128**-0.5, "1/sqrt(d_model)"), (1 / 32, "1/d_k"), (1 / 128, "1/d_model"), (1.0, "1"),
     (32**0.5, "sqrt(d_k)")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_scale_audit_names_the_scale(factor: float, name: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((2, 4, 9, 32)).astype(dtype) for _ in range(2))
    s = (q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * factor).astype(dtype)
    assert name in verify.scale_audit(q, k, s).names


def test_scale_audit_refuses_to_name_what_is_none() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 9, 32))[:, :, :], rng.standard_normal((2, 9, 32))
    dots = q @ k.swapaxes(-1, -2)
    assert scale_audit(q, k, dots * 0.123).names == ()
    assert "no multiple" in scale_audit(q, k, np.tanh(dots)).text()
    with pytest.raises(UsageError, match="expected"):
        scale_audit(q, k, dots[:1])
    with pytest.raises(UsageError, match="zero"):
        scale_audit(q * 0, k, dots)


def test_a_custom_reference() -> None:
    def right(q, k, v):  # type: ignore[no-untyped-def]
        """Attention by relu scores, outside Spec."""
        w = np.maximum(q @ k.swapaxes(-1, -2), 0) + 1e-3
        return w / w.sum(-1, keepdims=True) @ v

    def convex(q, k, v, out):  # type: ignore[no-untyped-def]
        return None if out.max() <= v.max() + 1e-6 else "an output lies beyond the largest value"

    assert verify.check(right, reference=right, properties=[convex]).ok
    wrong = verify.check(lambda q, k, v: right(q, k, v) * 1.5 + 1, reference=right, properties=[convex])
    assert {f.verdict for f in wrong.findings} >= {"proved wrong"}
    nothing = verify.check(right, reference=lambda q, k, v: right(q, k, v) * np.nan)
    assert "never a pass" in nothing.findings[0].message


def test_the_fixture(attention_check: Callable[..., verify.CheckResult]) -> None:
    from tests.verify.correct import plain
    from tests.verify.faulty import no_scale

    assert attention_check(plain, dtype="float32").ok
    with pytest.raises(pytest.fail.Exception, match="without a scale"):
        attention_check(no_scale, dtype="float32", first=True)


@settings(max_examples=40, deadline=None)
@given(attention_inputs(dtype="float64"))
def test_strategies_draw_valid_calls(drawn: dict[str, np.ndarray]) -> None:
    from tests.verify.correct import plain

    out = plain(**drawn)
    verify.assert_attention(out, **drawn)
    assert np.abs(np.einsum("bhnd,bhmd->bhnm", drawn["q"], drawn["k"])).max() / np.sqrt(drawn["q"].shape[-1]) <= 101


def test_designed_inputs_are_many_and_named() -> None:
    cases = designed_inputs("float32")
    assert len(cases) > 90
    assert len({c.name for c in cases}) == len(cases)
    assert all(c.call.dtype == np.float32 for c in cases)


def test_specs_survive_json() -> None:
    for text in (
        "scale=1/3",
        "causal=bottom-right window=3,none softcap=30",
        "rope=interleaved,base=500",
        "groups=4 past=2",
    ):
        spec = parse_spec(text).spec
        assert spec_from_json(spec_to_json(spec)) == spec


def test_nothing_heavy_is_loaded_by_the_plugin() -> None:
    heavy = "{'numpy', 'scipy', 'torch', 'hypothesis'}"
    code = f"import sys, verify, verify.pytest_plugin, verify.strategies; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_array_of_the_caller_is_never_changed(tmp_path: Path) -> None:
    q = np.ones((1, 3))
    q.setflags(write=False)
    verify.assert_attention(q, q, q, q)
    seen: list[int] = []

    def greedy(q, k, v):  # type: ignore[no-untyped-def]
        seen.append(id(q))
        k[:] = 0
        return v

    result = verify.check(greedy, quick=True, first=True)
    assert result.kinds == ("mutation",)


def test_budget_and_refusal() -> None:
    import time

    def slow(q, k, v):  # type: ignore[no-untyped-def]
        time.sleep(0.05)
        s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ v

    with pytest.raises(UsageError, match="raise --budget"):
        verify.check(slow, budget=0.1)
    result = verify.check(slow, budget=3)
    assert any("budget" in text for text in result.not_shown)

    def refuses(q, k, v):  # type: ignore[no-untyped-def]
        raise NotImplementedError("no float64")

    with pytest.raises(UsageError, match="refuses float64"):
        verify.check(refuses)
