"""`attnproof certify`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from verify.cli import main
from verify.jsonout import schema


def saved(path: Path, **more: np.ndarray) -> str:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 5, 8)).astype(np.float32) for _ in range(3))
    np.savez(path, q=q, k=k, v=v, **more)
    return str(path)


def right(path: str) -> np.ndarray:
    x = np.load(path)
    s = np.einsum("hid,hjd->hij", x["q"], x["k"]) / np.sqrt(np.float32(8))
    w = np.exp(s - s.max(axis=-1, keepdims=True))
    return (w / w.sum(axis=-1, keepdims=True)) @ x["v"]


def test_certificate_names_its_assumptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", saved(tmp_path / "a.npz"), "--target", "f32", "--causal", "top-left"]) == 0
    out = capsys.readouterr().out
    for word in ("A1", "A2", "A3", "A4", "Strassen", "NumPy", "correctly rounded to float32", "2×5×8"):
        assert word in out


def test_json_follows_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.npz", grad_output=np.ones((2, 5, 8), np.float32))
    assert main(["certify", path, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("certify-1"))
    assert {"output", "lse", "dq", "dk", "dv"} <= set(found["certificate"]["widths"])


def test_a_right_result_passes_and_a_wrong_one_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.npz")
    good = right(path).astype(np.float32)
    picture = tmp_path / "p.svg"
    assert main(["certify", saved(tmp_path / "g.npz", result=good), "--svg", str(picture)]) == 0
    root = ET.fromstring(picture.read_text(encoding="utf-8"))
    assert sum(1 for e in root if e.tag.endswith("circle")) == 3 + good.size
    bad = good.copy()
    bad[1, 2, 3] += 1e-3
    where = tmp_path / "bad.json"
    assert main(["certify", saved(tmp_path / "b.npz", result=bad), "--json", str(where)]) == 1
    found = json.loads(where.read_text(encoding="utf-8"))
    jsonschema.validate(found, schema("certify-1"))
    assert found["result"]["outside"] == 1
    assert found["result"]["worst"]["index"] == [1, 2, 3]
    assert "1 of 80 entries are proved outside" in capsys.readouterr().out


def test_the_classroom_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = tmp_path / "c.json"
    assert main(["certify", "--example", "cancel", "--json", str(where)]) == 0
    result = json.loads(where.read_text(encoding="utf-8"))["result"]
    # float32 is several times the largest output off, without any fault: the certificate says so
    assert result["error_over_largest"] > 3
    assert result["outside"] == 0
    assert "× the largest output" in capsys.readouterr().out


def test_a_missed_target_is_exit_code_one(tmp_path: Path) -> None:
    assert main(["certify", saved(tmp_path / "a.npz"), "--tier", "norm", "--target", "1e-18"]) == 1


@pytest.mark.parametrize("words", [[], ["--target", "f99"], ["--svg", "x.svg"]])
def test_usage(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = [saved(tmp_path / "a.npz")] if words else []
    assert main(["certify", *path, *words]) == 2
    assert capsys.readouterr().err.startswith("attnproof: ")


def test_files_that_are_not_what_they_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "short.npz", q=np.eye(2), k=np.eye(2))
    assert main(["certify", str(tmp_path / "short.npz")]) == 2
    np.savez(tmp_path / "odd.npz", q=np.eye(2), k=np.eye(2), v=np.eye(2), extra=np.eye(2))
    assert main(["certify", str(tmp_path / "odd.npz")]) == 2
    np.savez(tmp_path / "object.npz", q=np.array([None], dtype=object), k=np.eye(2), v=np.eye(2))
    assert main(["certify", str(tmp_path / "object.npz")]) == 2
    assert main(["certify", str(tmp_path / "none.npz")]) == 2
    assert "Traceback" not in capsys.readouterr().err
