"""`attnproof doctor`: what it sees, and the faults it must not overlook."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from verify import diagnosis
from verify.cli import main
from verify.jsonout import schema


def test_a_healthy_machine_gives_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("doctor-1"))
    assert found["problems"] == []
    assert found["machine"]["Python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert "blas" in found["machine"]["BLAS"].lower() or found["machine"]["BLAS"]


def test_missing_extras_come_with_their_install_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    out = capsys.readouterr().out
    for package in diagnosis.diagnose()["packages"]:
        if package["version"] is None:
            # Square brackets of an extra must survive the table's markup.
            assert package["install"].split()[-1] in out.replace("\n", "")


def test_a_required_package_that_is_missing_gives_three(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(diagnosis.REQUIRED, "no-such-distribution", "the test")
    assert main(["doctor"]) == 3
    assert "pip install no-such-distribution" in capsys.readouterr().out


def test_an_overwritten_package_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    owners = {"compute": ["attnproof", "other-compute"], "derive": ["attnproof"], "verify": []}
    monkeypatch.setattr(diagnosis.metadata, "packages_distributions", lambda: owners)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "other-compute" in out
    assert out.count("problem:") == 1


def test_a_package_imported_from_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stray = tmp_path / "derive" / "__init__.py"
    right = diagnosis.importlib.util.find_spec

    def wrong(name: str) -> Any:
        return types.SimpleNamespace(origin=str(stray)) if name == "derive" else right(name)

    monkeypatch.setattr(diagnosis.importlib.util, "find_spec", wrong)
    assert any(str(tmp_path) in text for text in diagnosis.overwritten())


def test_a_broken_cupy_does_not_stop_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(types.ModuleType):
        def is_available(self) -> bool:
            raise RuntimeError("driver too old")

    broken = Broken("cupy")
    broken.__spec__ = types.SimpleNamespace(name="cupy")  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "cupy", broken)
    found = diagnosis.diagnose()
    assert found["gpu"]["cupy"] == "broken"
    assert "driver too old" in found["gpu"]["text"]


def test_a_usable_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = types.ModuleType("cupy")
    cupy.__spec__ = types.SimpleNamespace(name="cupy")  # type: ignore[assignment]
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, getDeviceProperties=lambda index: {"name": b"A GPU of some make"}
    )
    cupy.is_available = lambda: True  # type: ignore[attr-defined]
    cupy.cuda = types.SimpleNamespace(runtime=runtime)  # type: ignore[attr-defined]
    cupy.__version__ = "14.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert diagnosis.diagnose()["gpu"]["devices"] == ["A GPU of some make"]
