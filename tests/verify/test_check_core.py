"""The core of a check: runner, metadata, values, properties, command line. Targets are files written by the tests."""

import json
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import verify
from verify import cli, errors, jsonout
from verify.checking.calls import Call, dtype_of, lay_out
from verify.checking.reference import truth
from verify.checking.runner import Isolated
from verify.checking.targets import parse_target

GOOD = """
import numpy as np

def attention(q, k, v, *, mask=None, causal=False, scale=None):
    s = np.einsum("bhnd,bhmd->bhnm", q, k) * q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)
    n, m = s.shape[-2:]
    if causal:
        s = np.where(np.tril(np.ones((n, m), bool)), s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    return np.einsum("bhnm,bhmd->bhnd", e / np.where(total > 0, total, 1), v)
"""

BAD = {
    "raises": ("raise RuntimeError('no luck')", "raises"),
    "hangs": ("while True: pass", "hang"),
    "dies": ("import os; os._exit(3)", "died"),
    "wrong_shape": ("return attention(q, k, v)[..., :1]", "shape"),
    "wrong_dtype": ("return attention(q, k, v).astype('float32')", "dtype"),
    "wrong_type": ("return attention(q, k, v).tolist()", "type"),
    "mutates": ("r = attention(q, k, v); q *= 2; return r", "mutation"),
    "seeds": ("np.random.seed(0); return attention(q, k, v)", "global state"),
    "ignores": (
        "np.seterr(all='ignore' if np.geterr()['over'] != 'ignore' else 'warn'); return attention(q, k, v)",
        "global state",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [GOOD]
    for name, (body, _) in BAD.items():
        lines.append(f"def {name}(q, k, v):\n    {body}\n")
    (tmp_path / "targets.py").write_text("\n".join(lines))
    (tmp_path / "broken.py").write_text("raise ValueError('at import')\n")
    (tmp_path / "needs.py").write_text("import surely_not_installed_package\n")
    return tmp_path


def test_a_correct_function_agrees(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["check", f"{folder}/targets.py:attention", "--quick"])
    out = capsys.readouterr().out
    assert code == errors.AGREES
    assert "agrees (float64" in out
    assert "empty-row by mask: zero" in out
    assert "is the causal corner that is meant: it is the one that a probe met" in out


@pytest.mark.parametrize("name", BAD)
def test_what_a_target_must_not_do(folder: Path, name: str) -> None:
    result = verify.check(f"{folder}/targets.py:{name}", quick=True, timeout=2.0)
    assert result.exit_code == errors.DIFFERS
    assert result.findings[0].verdict == "property broken"
    assert result.findings[0].rule == BAD[name][1]


def test_a_child_answers_again_after_a_crash(folder: Path) -> None:
    (folder / "sometimes.py").write_text(
        "import os\ndef f(q, k, v):\n    if q[0, 0, 0, 0] > 5: os._exit(9)\n    return v\n"
    )
    subject = Isolated(parse_target(f"{folder}/sometimes.py:f"), timeout=20)
    one = np.ones((1, 1, 1, 1))
    try:
        assert subject.ask(Call(one * 9, one, one)).fault == "died"
        again = subject.ask(Call(one, one, one * 3))
        assert again.output is not None
        assert again.output.tolist() == [[[[3.0]]]]
    finally:
        subject.close()


@pytest.mark.skipif(sys.platform == "win32", reason="memory is limited through RLIMIT_DATA")
def test_a_memory_blow_up_is_found(folder: Path) -> None:
    (folder / "greedy.py").write_text(
        "import numpy as np\ndef f(q, k, v):\n    x = np.ones(2**31 // 8)\n    return v + x[0] * 0\n"
    )
    result = verify.check(f"{folder}/greedy.py:f", memory=1 << 30)
    assert result.findings[0].rule == "memory"


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("nothing.py:f", errors.USAGE, "no file nothing.py"),
        ("{folder}/targets.py:attentoin", errors.USAGE, "attention"),
        ("{folder}/targets.py", errors.USAGE, "expected FILE.py:FUNCTION"),
        ("{folder}/broken.py:f", errors.USAGE, "raises when imported: ValueError: at import"),
        ("{folder}/needs.py:f", errors.NOT_INSTALLED, "pip install surely_not_installed_package"),
        ("torch.spda", errors.USAGE, "torch.sdpa"),
        ("surely_no_module:f", errors.USAGE, "no module"),
        ("none.onnx", errors.USAGE, "no file none.onnx"),
    ],
)
def test_bad_targets(folder: Path, capsys: pytest.CaptureFixture[str], target: str, code: int, said: str) -> None:
    assert cli.main(["check", target.format(folder=folder)]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--spec", "nonsense"], ["--spec", "causal=middle"], ["--spec", "window=-1,0"], ["--dtype", "int8"],
     ["--arg", "mask"],
         ["--algorithm", "slow"], ["--algorithm", "flash:block=0"], ["--timeout", "-1"], ["--arg", "mask=nothing"]],
)  # fmt: skip
def test_bad_options(folder: Path, words: list[str]) -> None:
    assert cli.main(["check", f"{folder}/targets.py:attention", *words]) == errors.USAGE


def test_json_and_junit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where, page = folder / "out.json", folder / "out.xml"
    (folder / "scaled.py").write_text(GOOD.replace("** -0.5", "** -1.0"))
    words = ["check", f"{folder}/scaled.py:attention", "--quick", "--json", str(where), "--junit-xml", str(page)]
    assert cli.main(words) == errors.DIFFERS
    found = json.loads(where.read_text())
    jsonschema.validate(found, jsonout.schema("check-1"))
    assert found["status"] == "differs"
    finding = found["findings"][0]
    assert finding["kind"] == "scale"
    assert "1/d_k" in finding["diagnosis"]
    assert finding["replay"].startswith("attnproof check")
    assert 'failures="' in page.read_text()
    capsys.readouterr()
    assert cli.main(["check", f"{folder}/targets.py:attention", "--quick", "--json", "-"]) == errors.AGREES
    jsonschema.validate(json.loads(capsys.readouterr().out), jsonout.schema("check-1"))


def test_the_reference_equals_a_sum_in_rationals() -> None:
    """Against mpmath at 60 digits, entry by entry, inside the radius."""
    import mpmath

    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, 4, 5)).astype(np.float32) for _ in range(3))
    right = truth(Call(q, k, v))
    with mpmath.workdps(60):
        for h in range(2):
            for i in range(4):
                s = [mpmath.fdot(map(float, q[0, h, i]), map(float, k[0, h, j])) / mpmath.sqrt(5) for j in range(4)]
                w = [mpmath.exp(x) for x in s]
                for c in range(5):
                    z = mpmath.fdot(w, map(float, v[0, h, :, c])) / mpmath.fsum(w)
                    mid = right.output[0, h, i, c]
                    high = mpmath.mpf(float(mid)) + mpmath.mpf(float(mid - np.longdouble(float(mid))))
                    assert abs(z - high) <= float(right.radius[0, h, i, c])
    assert right.radius.max() < 1e-14


@pytest.mark.parametrize("memory", ["contiguous", "strided", "reversed", "transposed", "readonly"])
def test_memory_layouts_keep_the_values(memory: str) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    laid = lay_out(x, memory)  # type: ignore[arg-type]
    assert np.array_equal(laid, x)
    assert not np.shares_memory(laid, x)


def test_bfloat16_is_a_dtype_here() -> None:
    assert dtype_of("bfloat16").itemsize == 2
    assert dtype_of("float8_e4m3fn").itemsize == 1
