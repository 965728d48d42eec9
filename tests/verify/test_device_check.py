"""The device check's own script, run on the emulator with tiny sizes; what it must refuse, it refuses."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from compute import canaries
from compute.errors import NotInstalled
from compute.kernels import loader, sources
from compute.kernels.emulator import compiler
from tests.compute import fake_cupy
from verify import errors, jsonout
from verify.cli import main
from verify.commands import bench
from verify.device import sections
from verify.device.machine import Machine
from verify.device.record import Record

ROOT = Path(__file__).parent.parent.parent

try:
    compiler()
except NotInstalled as error:  # pragma: no cover
    pytest.skip(str(error), allow_module_level=True)


def test_the_whole_check_on_the_emulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "record.json"
    assert main(["bench", "--device", "emulator", "--tiny", "--json", str(out)]) == errors.AGREES
    document = json.loads(out.read_text())
    jsonschema.validate(document, jsonout.schema("bench-1"))
    assert set(document["seconds"]) == {name for name, _, _ in sections.SECTIONS}
    assert document["failed"] == []
    formats = {(r["family"], r["format"]) for r in document["rows"] if r["section"] == "correctness"}
    assert formats == {(f.name, fmt) for f in sources.FAMILIES.values() if f.is_attention for fmt in f.formats}
    assert "0 failures" in capsys.readouterr().out


def test_what_only_a_device_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole check as on a device, on a stand-in for CuPy: events, attributes, facts, our kernels by name."""
    cupy = fake_cupy.with_events(fake_cupy.module())
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(canaries, "_passed", set())
    monkeypatch.setattr(loader.Device, "_load", lambda self, code, defines: fake_cupy.emulated_module(code, defines))
    loader._on.cache_clear()
    out = tmp_path / "record.json"
    assert main(["bench", "--device", "cuda", "--tiny", "--json", str(out)]) == errors.AGREES, capsys.readouterr().err
    loader._on.cache_clear()
    document = json.loads(out.read_text())
    jsonschema.validate(document, jsonout.schema("bench-1"))
    assert document["failed"] == []
    assert document["facts"]["compute_capability"] == [9, 0]
    assert {r["algorithm"] for r in document["rows"] if r["section"] == "public calls"} >= {"kernel", "online"}
    built = [r for r in document["rows"] if r["section"] == "build"]
    assert all(r["registers"] == 32 and r["local_bytes"] == 0 for r in built)
    costs = [r for r in document["rows"] if "bar" in r]
    assert {r["within"] for r in costs} <= {True, False}
    assert len(costs) == 3


@pytest.mark.parametrize(
    "edit",
    [
        {"sum[i] = sum[i] * shrink + part;": "sum[i] = sum[i] + part;"},
        {"p * (dp[i][j] - delta[query]) * slope": "p * (dp[i][j] + delta[query]) * slope"},
    ],
)
def test_a_wrong_kernel_fails_the_check(edit: dict[str, str]) -> None:
    machine = Machine("emulator")
    machine.backend.edit = edit
    record = Record("emulator", True, 1e9, None, lambda text: None)
    machine.families = lambda: [("simt", "float64")]  # type: ignore[method-assign]
    record.section("correctness", lambda: sections.correct(machine, record))
    assert record.failed


def test_a_kernel_that_writes_nothing_fails_the_check() -> None:
    """Outputs are poisoned with NaN: what is not written can't pass."""
    machine = Machine("emulator")
    machine.backend.edit = {"to[(size_t)row * D + c * TX + tx] = (ST)acc[i][c];": ";"}
    machine.families = lambda: [("simt", "float32")]  # type: ignore[method-assign]
    record = Record("emulator", True, 1e9, None, lambda text: None)
    record.section("correctness", lambda: sections.correct(machine, record))
    assert len(record.rows) == 3
    assert len(record.failed) == len(record.rows)


def test_a_section_that_raises_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    record = Record("emulator", True, 1e9, str(out), lambda text: None)

    def good() -> None:
        record.row(what="kept", ok=True)

    def bad() -> None:
        record.row(what="begun")
        raise MemoryError("out of memory")

    record.section("first", good)
    record.section("second", bad)
    record.section("third", good)
    document: dict[str, Any] = json.loads(out.read_text())
    assert [r["what"] for r in document["rows"]] == ["kept", "begun", "kept"]
    assert document["failed"] == ["second: MemoryError: out of memory"]


def test_no_time_left_is_said() -> None:
    record = Record("emulator", True, 5.0, None, lambda text: None)
    record.section("long", lambda: None, need=60.0)
    assert "not run" in record.failed[0]


def test_without_a_device_the_answer_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        import cupy
    except ImportError:
        assert main(["bench"]) == errors.NOT_INSTALLED
        assert "pip install -e '.[cuda13]'" in capsys.readouterr().err
        return
    if not cupy.is_available():
        assert main(["bench"]) == errors.NOT_INSTALLED
        assert "NumPy works" in capsys.readouterr().err


def test_unknown_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", "emulator", "--only", "speed"]) == errors.USAGE
    assert "sections are build" in capsys.readouterr().err


def test_committed_device_records_belong_to_these_kernels() -> None:
    """Names the kernel families that changed since a device last measured them; the README must then say so."""
    records = sorted((ROOT / "benchmarks" / "device").glob("*.json"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if not records:
        assert "not measured on a device" in readme
        return
    measured = json.loads(records[-1].read_text(encoding="utf-8"))
    jsonschema.validate(measured, jsonout.schema("bench-1"))
    stale = sorted(n for n, h in sources.hashes().items() if measured["kernel_sources"].get(n) != h)
    for name in stale:
        assert f"`{name}` changed since it was measured" in readme


def test_the_sections_are_those_that_are_described() -> None:
    text = (ROOT / "benchmarks" / "device" / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("|")][2:]
    described = [(name.strip(), float(seconds)) for name, seconds in rows]
    assert described == [(name, need) for name, _, need in sections.SECTIONS]
    assert sum(need for _, need in described) <= 450
    budget = _parsed([]).budget
    assert budget + 30 <= 8 * 60
    assert f"({budget:g} by default" in text


def _parsed(words: list[str]) -> Any:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


def test_the_reference_of_the_check_is_attention() -> None:
    """The formula that kernels are held to, against two keys by hand."""
    machine = Machine("emulator")
    from compute.kernels import attention
    from compute.spec import Spec

    q, k = np.ones((1, 1, 1, 1)), np.array([[[[0.0], [np.log(3.0)]]]])
    v = np.array([[[[1.0], [5.0]]]])
    p = attention.problem(np, q, k, v, Spec())
    got = sections.formula(machine, p, np.ones((1, 1, 1, 1)))
    np.testing.assert_allclose(got["out"], 4.0, rtol=1e-15)
    np.testing.assert_allclose(got["lse"], np.log(4.0), rtol=1e-15)
    np.testing.assert_allclose(got["dv"][0, 0, :, 0], [0.25, 0.75], rtol=1e-15)
    np.testing.assert_allclose(got["dq"], 0.75 * np.log(3.0), rtol=1e-14)
