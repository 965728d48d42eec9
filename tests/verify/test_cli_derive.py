"""`attnproof derive`: what it prints, writes and returns."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import derive
from verify.cli import main
from verify.jsonout import schema


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["derive", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_list_names_every_claim_and_proves_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: Any) -> Any:
        raise AssertionError("--list proved something")

    monkeypatch.setattr(derive.Claim, "prove", never)
    code, out, _ = run(capsys, "--list")
    assert code == 0
    assert all(c.id in out for c in derive.claims())


def test_a_claim_is_proved_and_its_steps_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "scores.bilinear")
    assert code == 0
    one = derive.claim("scores.bilinear")
    assert one.title["en"] in out
    assert "Proved" in out
    assert all(step.rule in out for step in one.steps)


@pytest.mark.parametrize(("form", "mark"), [("latex", r"\begin{align*}"), ("markdown", "$$")])
def test_other_formats(form: str, mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "softmax.jacobian", "--format", form)
    assert code == 0
    assert mark in out
    assert "Proved" in out


def test_cite_prints_each_source_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "scores", "softmax", "--cite")
    assert code == 0
    assert out.count("@misc{vaswani2017") == 1


def test_json_follows_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "out.json"
    code, out, _ = run(capsys, "variance.scores", "scores.matrix", "--json", str(place))
    found = json.loads(place.read_text(encoding="utf-8"))
    jsonschema.validate(found, schema("derive-1"))
    assert code == 0
    assert [c["id"] for c in found["claims"]] == ["variance.scores", "scores.matrix"]
    assert found["claims"][0]["verdict"]["kind"] == "Proved"
    assert "variance.scores" in out


def test_json_on_standard_output_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--list", "--json", "-")
    jsonschema.validate(json.loads(out), schema("derive-1"))


def test_an_unknown_claim_offers_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "softmax.jacobien")
    assert code == 2
    assert "softmax.jacobian" in err
    assert "Traceback" not in err


def test_what_is_not_proved_gives_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive.Claim, "prove", lambda self: derive.Verdict.unknown("no rule applies"))
    code, out, _ = run(capsys, "scores.matrix")
    assert code == 1
    assert "Unknown: no rule applies" in out
    assert "Refuted" not in out
