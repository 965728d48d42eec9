"""The device check's certified enclosures: their carried values are Arb's, and what is wrong fails."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compute import climb
from compute.enclosure import Enclosure
from compute.errors import NotInstalled
from compute.heads import split
from compute.kernels import bridge
from compute.kernels.emulator import compiler
from compute.table_exp import exp64
from compute.tier1_operands import BLOCK, DEVICE_BLOCK, Prepared, Settings
from tests.compute import fake_cupy
from verify.device import arb_cases, certified
from verify.device.arb_cases import Exact, Met, cases, values
from verify.device.machine import Machine
from verify.device.record import Record

ROOT = Path(__file__).parent.parent.parent

try:
    compiler()
except NotInstalled as error:  # pragma: no cover
    pytest.skip(str(error), allow_module_level=True)


def run(machine: Any = None) -> Record:
    machine = machine or Machine("emulator")
    record = Record("emulator", True, 1e9, None, lambda text: None)
    record.section("certified enclosures", lambda: certified.certified(machine, record))
    return record


def failing(record: Record) -> list[dict[str, Any]]:
    return [row for row in record.rows if row.get("ok") is False]


def test_the_values_carried_along_are_arbs() -> None:
    pytest.importorskip("flint")
    spec = importlib.util.spec_from_file_location("device_values", ROOT / "benchmarks" / "device_values.py")
    assert spec is not None
    assert spec.loader is not None
    made: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.document() == json.loads(arb_cases.FILE.read_text(encoding="utf-8"))
    assert arb_cases.FILE.stat().st_size < 200_000


def test_the_values_are_sharp() -> None:
    """Far sharper than Tier 2's radii, so that meeting them says something."""
    for name, results in values().items():
        for what, exact in results.items():
            finite = exact.hi[np.isfinite(exact.hi)]
            assert exact.radius <= 2.0**-100 * np.abs(finite).max(initial=2.0**-900), (name, what)
            assert (np.abs(exact.lo) <= 2.0**-53 * np.abs(np.where(np.isfinite(exact.hi), exact.hi, 1.0))).all()


def test_each_case_is_of_its_kind() -> None:
    kinds = {c.name: c for c in cases()}

    def logits(name: str) -> Any:
        c = kinds[name]
        return (c.q.astype(float) @ c.k.astype(float).T) * c.spec.scale_value(c.q.shape[-1])

    gaps = np.sort(logits("saturated"), axis=1)
    assert (gaps[:, -1] - gaps[:, -2] > 37).all(), "one weight is 1 to the last bit"
    assert np.abs(logits("large logits")).max() > 300
    c = kinds["float16 inputs, exact scores"]
    assert {a.dtype for a in (c.q, c.k, c.v)} == {np.dtype(np.float16)}
    assert Prepared(split(c.q, c.k, c.v).items[0], Settings()).free.all()
    out = values()["cancelling values"]["output"].hi
    assert np.abs(out).max() < 1e-2 * np.abs(kinds["cancelling values"].v).max()
    assert np.isneginf(values()["mask with an empty row"]["lse"].hi).tolist() == [i == 2 for i in range(6)]
    assert kinds["groups"].q.shape[0] == 2 * kinds["groups"].k.shape[0]
    assert len(kinds["many keys"].k) > BLOCK, "more than one block of keys"
    more = kinds["more keys than a device's block"]
    assert len(more.k) > 2 * DEVICE_BLOCK
    assert len(more.k) % DEVICE_BLOCK
    assert {c.name for c in cases() if c.left_out} == {more.name}


def test_values_of_other_inputs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = (replace(cases()[0], v=cases()[0].v + 1.0), *cases()[1:])
    monkeypatch.setattr(arb_cases, "cases", lambda: other)
    with pytest.raises(ValueError, match="'plain' belong to other inputs"):
        values.__wrapped__()


def test_all_is_met_without_python_flint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    record = run()
    assert record.failed == []
    met = [r for r in record.rows if "case" in r]
    assert {(r["case"], r["tier"]) for r in met} == {(c.name, t) for c in cases() for t in ("norm", "abs", "tight")}
    assert sum("dq" in r["widths"] for r in met) == 2 * len(cases())
    assert all(0 < r["worst"] < 1 for r in met)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine of the stand-in's arrays; our kernels run in the emulator."""
    cupy = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    backend = fake_cupy.Kernels(cupy)
    monkeypatch.setattr(bridge, "device", lambda: backend)
    machine = Machine("emulator")
    machine.backend, machine.xp = backend, cupy
    machine.host = lambda a: np.asarray(a.inner if isinstance(a, fake_cupy.ndarray) else a)  # type: ignore[method-assign]
    return machine


def test_all_is_met_on_arrays_of_a_stand_in_device(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launched, batches = [], []
    function, product = stand_in.backend.function, stand_in.xp.cuda.cublas.dgemmStridedBatched
    monkeypatch.setattr(stand_in.backend, "function", lambda *args: launched.append(args[0]) or function(*args))
    monkeypatch.setattr(stand_in.xp.cuda.cublas, "dgemmStridedBatched", lambda *a: batches.append(a[-1]) or product(*a))
    record = run(stand_in)
    assert record.failed == []
    assert len([r for r in record.rows if "case" in r]) == 3 * len(cases())
    assert launched.count("table_exp") > 2 * len(cases())
    assert len(batches) >= 3, "more keys than a block: by one strided batch"


def test_a_wrong_product_on_a_device_fails(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of weights meets the values of the first one."""
    product = stand_in.xp.cuda.cublas.dgemmStridedBatched
    monkeypatch.setattr(stand_in.xp.cuda.cublas, "dgemmStridedBatched", lambda *a: product(*a[:9], 0, *a[10:]))
    bad = {(r["case"], r["tier"]) for r in failing(run(stand_in)) if "case" in r}
    assert {("more keys than a device's block", tier) for tier in ("norm", "abs")} <= bad
    assert {case for case, _ in bad} <= {"many keys", "more keys than a device's block"}


def wrong_certificates(monkeypatch: pytest.MonkeyPatch, change: Any) -> Record:
    right = certified.certify

    def wrong(*args: Any, **given: Any) -> Any:
        c = right(*args, **given)
        return replace(c, **{name: change(e) for name, e in c.enclosures().items()})

    monkeypatch.setattr(certified, "certify", wrong)
    return run()


@pytest.mark.parametrize(
    "change",
    [
        lambda e: replace(e, rad=e.rad * 2.0**-9),
        lambda e: replace(e, mid=e.mid + 3 * e.rad),
        lambda e: replace(e, rad=np.where(e.rad == e.rad.max(), np.inf, e.rad)),
        lambda e: replace(e, rad=-np.abs(e.rad)),
        lambda e: replace(e, mid=np.full_like(e.mid, np.nan)),
        lambda e: Enclosure(e.mid[..., None], e.rad[..., None]),
        lambda e: replace(e, mid=np.where(np.isneginf(e.mid), -1e308, e.mid * (1 + 2.0**-30))),
    ],
    ids=["too narrow", "moved", "unbounded", "negative", "nan", "another shape", "another value"],
)
def test_wrong_certificates_fail(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    bad = [r for r in failing(wrong_certificates(monkeypatch, change)) if "case" in r]
    assert len(bad) == 3 * len(cases())


def test_enclosures_that_exclude_nothing_fail_the_control(monkeypatch: pytest.MonkeyPatch) -> None:
    record = wrong_certificates(monkeypatch, lambda e: replace(e, rad=e.rad * 1e14))
    assert [r["what"] for r in failing(record)] == [f"values off by 2^-36, {t}" for t in ("norm", "abs", "tight")]


def test_a_wrong_exp_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def rough(x: Any, out: Any = None) -> Any:
        got = exp64(x) * (1 + 2.0**-36 * np.cos(100 * np.asarray(x)))
        if out is None:
            return got
        out[...] = got
        return out

    monkeypatch.setattr(climb, "exp64", rough)
    bad = {r["case"] for r in failing(run()) if "case" in r}
    assert len(bad) >= len(cases()) - 1  # a saturated row has one weight


def test_a_wrong_kernel_of_the_table_exp_fails() -> None:
    machine = Machine("emulator")
    machine.backend.edit = {"__ldg(table + index)": "__ldg(table + index - (index > 3))"}
    assert [r["what"] for r in failing(run(machine))] == ["table exp against its proved twin"]


def test_comparisons_are_exact() -> None:
    """On the edge of a radius, where a subtraction in float64 would round."""
    exact = Exact(np.array([1.0]), np.array([2.0**-70]), 0.0)
    for rad, excluded in ((2.0**-70, 0), (np.nextafter(2.0**-70, 0), 1), (0.0, 1), (np.inf, 0), (np.nan, 1)):
        met = Met().add(Enclosure(np.array([1.0]), np.array([rad])), exact)
        assert (met.entries, met.excluded) == (1, excluded)
    met = Met().add(Enclosure(np.array([1.0]), np.array([2.0**-80]), np.array([2.0**-70])), exact)
    assert met.excluded == 0
    assert met.worst == 0.0
    met = Met().add(Enclosure(np.array([1.0]), np.array([2.0**-71])), replace(exact, radius=2.0**-71))
    assert met.excluded == 0
    assert met.worst == float(Fraction(2))
