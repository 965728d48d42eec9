"""The table exp's kernel in the emulator: the bits of `compute.table_exp.exp64`, and every planted fault is caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compute.errors import DeviceError, InputError, NotInstalled
from compute.kernels import bridge, sources, table_exp
from compute.kernels.emulator import compiler
from compute.kernels.loader import Emulator
from compute.table_exp import Work, exp64, exp_pair, table

try:
    compiler()
except NotInstalled as error:  # pragma: no cover
    pytest.skip(str(error), allow_module_level=True)

BACKEND = Emulator()


def arguments() -> Any:
    """Every index of the table with its ties, both branches, subnormal results, and the edges between them."""
    rng = np.random.default_rng(3)
    ties = -(np.arange(600 * 256) + 0.5) / 256
    edges = np.array([0.0, -600.0, -1200.0, -708.396418532264, -745.1332191019411, -745.1332191019412, -746.0, -800.0])
    return np.concatenate(
        [
            ties,
            np.nextafter(ties[::7], 0),
            np.nextafter(ties[::7], -np.inf),
            -np.arange(600 * 256 + 1) / 256,
            -rng.random(150_000) * 760,
            -rng.random(50_000),
            -(2.0 ** -rng.integers(1, 1074, 5000).astype(float)),
            -708 - rng.random(20_000) * 37.2,
            -600 + (rng.random(5000) - 0.5) * 0.01,
            np.nextafter(edges, 0),
            edges,
            np.nextafter(edges[1:], -np.inf),
            [-0.0, -np.inf, -5e-324, -1e308],
        ]
    )


X = arguments()
WANT = exp64(X)


def bits(a: Any) -> Any:
    return np.ascontiguousarray(a).view(np.int64)


def test_the_bits_of_the_proved_function() -> None:
    got = table_exp.exp64(BACKEND, X)
    np.testing.assert_array_equal(bits(got), bits(WANT))
    assert (got[X <= -746] == 0).all()
    assert ((got > 0) & (got < np.finfo(float).tiny)).sum() > 10_000, "subnormal results are among them"


def test_ends_nan_and_positive_arguments() -> None:
    got = table_exp.exp64(BACKEND, np.array([0.0, -0.0, -np.inf, np.nan, np.inf, 5e-324, 3.0]))
    np.testing.assert_array_equal(got, [1, 1, 0, np.nan, np.nan, np.nan, np.nan])


EACH = "i < EXP_EACH; ++i) {\n      const long long j = first + (long long)i * blockDim.x;\n      "
# Each replaces one operation by what a compiler or a tired programmer might make of it.
FAULTS = {
    "index cut, not rounded": ("rint(__dmul_rn(dh, -EXP_GRID))", "trunc(__dmul_rn(dh, -EXP_GRID))"),
    "ties away from even": ("rint(__dmul_rn(dh, -EXP_GRID))", "floor(__dmul_rn(dh, -EXP_GRID) + 0.5)"),
    "the next entry": ("__ldg(table + index)", "__ldg(table + index + 1)"),
    "the table ends early": ("a <= EXP_LAST * EXP_GRID ?", "a < EXP_LAST * EXP_GRID ?"),
    "no tail": ("a = __dadd_rn(a, b);\n  c = __dmul", "c = __dmul"),
    "tail without its factor": ("b = __dadd_rn(__dmul_rn(b, entry.y), entry.y);", "b = entry.y;"),
    "no low part of the argument": ("a = __dmul_rn(__dadd_rn(a, q), entry.x);", "a = __dmul_rn(q, entry.x);"),
    "a coefficient of the series": ("1.0 / 24.0", "1.0 / 25.0"),
    "the last coefficient": ("1.0 / 720.0", "1.0 / 721.0"),
    "no square": ("result = __dadd_rn(p,", "result = w.high; __dadd_rn(p,"),
    "the square rounded once": ("rest = __dadd_rn(rest, __dmul_rn(l, l));", "rest = 0.0;"),
    "the square's low part": ("__dmul_rn(__dmul_rn(2.0, w.high), w.low)", "__dmul_rn(w.high, w.low)"),
    "another threshold": ("const bool far = x < -EXP_LAST;", "const bool far = x < -EXP_LAST - 1.0;"),
    "no cap": ("if (dh < -EXP_LAST) dh = -EXP_LAST;", ";"),
    "head and rh not summed exactly": ("c = __dsub_rn(c, __dsub_rn(d, entry.x));", "c = 0.0;"),
    "another grid of rh": ("#define EXP_SHIFT 196608.0", "#define EXP_SHIFT 201326592.0"),
    "a thread's first entries only": (EACH + "x[i] =", EACH.replace("EACH;", "EACH - 1;") + "x[i] ="),
    "blocks beyond the grid": ("piece < rows * pieces;", "piece < gridDim.x;"),
}  # fmt: skip


def broken(old: str, new: str) -> Emulator:
    backend = Emulator()
    backend.edit = {old: new}
    return backend


PAIRS = """
extern "C" __global__ void pairs(const double* x, double* high, double* low, const double2* table, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Pair w = exp_pair(x[i], table);
  high[i] = w.high;
  low[i] = w.low;
}
"""


def pairs(edit: dict[str, str], x: Any) -> tuple[Any, Any]:
    code = sources.text("table_exp", "float64")
    for old, new in edit.items():
        assert old in code
        code = code.replace(old, new)
    high, low = np.full_like(x, np.nan), np.full_like(x, np.nan)
    kernel = BACKEND.build(code + PAIRS, "pairs")
    kernel((-(-x.size // 64),), (64,), (x, high, low, np.stack(table(), axis=1), np.int64(x.size)))
    return high, low


NEAR = np.ascontiguousarray(X[(X >= -600) & (X <= 0)][::5])
LOW_PART = ("ties away from even", "the last coefficient", "another grid of rh")


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_change_bits(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_exp, "BLOCKS", 64)
    got = table_exp.exp64(broken(*FAULTS[fault]), X)
    seen = bool((bits(got) != bits(WANT)).any())
    # A change far below the last place of the sum shows in its low part alone.
    assert seen or fault in LOW_PART
    if fault in LOW_PART:
        low = pairs(dict([FAULTS[fault]]), NEAR)[1]
        assert (bits(low) != bits(pairs({}, NEAR)[1])).sum() > 1000


NOTHING: dict[str, str] = {}
EXACT = {"a = __dadd_rn(dh, a);": "a = __fma_rn(rint(dh * -EXP_GRID), 1.0 / EXP_GRID, dh);"}
CONTRACTED = {
    "series": {
        "q = __dmul_rn(__dadd_rn(q, 1.0 / 6.0), b);": "const double q6 = __dadd_rn(q, 1.0 / 6.0);",
        "q = __dmul_rn(__dadd_rn(q, 0.5), b);": "q = __dmul_rn(__fma_rn(q6, b, 0.5), b);",
    },
    "series into the low part": {
        "q = __dmul_rn(__dadd_rn(q, 0.5), b);": (
            "q = __dmul_rn(__dadd_rn(q, 0.5), b);\n  const double aq = __fma_rn(q, b, a);"
        ),
        "a = __dmul_rn(__dadd_rn(a, q), entry.x);": "a = __dmul_rn(aq, entry.x);",
    },
    "low part into the tail": {
        "a = __dmul_rn(__dadd_rn(a, q), entry.x);": "const double aq = __dadd_rn(a, q);",
        "a = __dadd_rn(a, b);\n": "a = __fma_rn(aq, entry.x, b);\n",
    },
}


def test_both_parts_are_those_of_exp_pair() -> None:
    work = Work((1, NEAR.size))
    w1, w2 = np.empty((1, NEAR.size)), np.empty((1, NEAR.size))
    exp_pair(NEAR[None], np.zeros((1, NEAR.size)), w1, w2, work, None)
    for edit in (NOTHING, EXACT):  # (T2) is exact: fused or not
        high, low = pairs(edit, NEAR)
        np.testing.assert_array_equal(bits(high), bits(w1[0]))
        np.testing.assert_array_equal(bits(low), bits(w2[0]))


@pytest.mark.parametrize("name", CONTRACTED)
def test_contraction_changes_bits(name: str) -> None:
    """Where a fused operation would differ, it shows; that the compiler makes none is a test of NVRTC's output."""
    changed = bits(pairs(CONTRACTED[name], NEAR)[1]) != bits(pairs({}, NEAR)[1])
    assert changed.any()  # few: most sums of a grid with its multiples need no rounding


@pytest.mark.parametrize("schedule", ["reversed", "first warp ahead"])
@pytest.mark.parametrize("m", [1, 5, 31, 128, 129, 1024, 1300])
def test_rows_of_a_padded_buffer(schedule: str, m: int) -> None:
    rng = np.random.default_rng(m)
    buffer = rng.standard_normal((37, m + 19)) * 300
    kept = buffer.copy()
    scores = buffer[:, 3 : 3 + m]
    scores[1::2, 0] = -np.inf
    scores[4] = -np.inf
    top = np.where(np.isneginf(scores.max(axis=1)), 0.0, scores.max(axis=1))
    want = exp64(scores - top[:, None])
    got = bridge.shifted_exp(scores, top, Emulator(schedule))
    assert got is scores
    np.testing.assert_array_equal(bits(scores), bits(want))
    assert (scores[4] == 0).all()
    for outside in (slice(0, 3), slice(3 + m, None)):
        np.testing.assert_array_equal(buffer[:, outside], kept[:, outside])


def test_more_pieces_than_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_exp, "BLOCKS", 3)
    scores = -np.random.default_rng(0).random((50, 2100)) * 20
    want = exp64(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_array_equal(bridge.shifted_exp(scores, scores.max(axis=1), BACKEND), want)


@pytest.mark.parametrize(
    "fault",
    [
        ("__dsub_rn(x[i], shift)", "x[i]"),
        ("row * to_stride", "row * columns"),
        ("top[row]", "top[0]"),
        ("x[i] = j < columns ?", "x[i] = j < columns - 1 ?"),
        ("row = piece / pieces", "row = piece % rows"),
    ],
)
def test_planted_faults_of_the_rows(fault: tuple[str, str]) -> None:
    buffer = np.random.default_rng(0).standard_normal((9, 1500)) * 9
    buffer[:, 1300:] = 0.0
    scores = buffer[:, :1300]
    top = scores.max(axis=1)
    want = exp64(scores - top[:, None])
    bridge.shifted_exp(scores, top, broken(*fault))
    assert not np.array_equal(scores, want, equal_nan=True)


def layouts() -> dict[str, tuple[Any, Any]]:
    """x and out of every layout: contiguous, padded, transposed, three axes, scalar, empty."""
    x = -np.random.default_rng(1).random((6, 10, 14)) * 50
    padded, wide = np.empty((6, 20)), -np.random.default_rng(2).random((6, 33)) * 9
    return {
        "new": (x, None),
        "in place": (x.copy(), "x"),
        "rows in place": (wide[:, 4:14], "x"),
        "rows out": (x[:, :, 0], padded[:, 7:17]),
        "contiguous to rows": (np.ascontiguousarray(x[:, :, 0]), padded[:, :10]),
        "rows to contiguous": (wide[:, 4:14], np.empty((6, 10))),
        "transposed": (x[0].T, None),
        "transposed out": (x[0], np.empty((14, 10)).T),
        "three axes with gaps": (x[:, ::2, 3:], np.empty((6, 5, 11))),
        "three axes into gaps": (np.ascontiguousarray(x[:, ::2]), np.empty((6, 10, 14))[:, ::2]),
        "backwards": (x[0, ::-1], None),
        "repeated": (np.broadcast_to(x[0, 0], (5, 14)), None),
        "one column": (x[0, :, :1], None),
        "vector with gaps": (x[0, :, 0], None),
        "scalar": (np.array(-2.5), None),
        "empty": (np.empty((0, 3)), None),
        "no columns": (np.empty((3, 0)), None),
    }


@pytest.mark.parametrize("name", layouts())
def test_layouts(name: str) -> None:
    x, out = layouts()[name]
    want = exp64(x.copy())
    target = x if isinstance(out, str) else out
    got = bridge.exp64(x, target, BACKEND)
    assert target is None or got is target
    assert got.shape == x.shape
    np.testing.assert_array_equal(got, want)


def test_bad_input() -> None:
    x = np.zeros((3, 4))
    with pytest.raises(InputError, match="float32: expected float64"):
        bridge.exp64(x.astype(np.float32), None, BACKEND)
    with pytest.raises(InputError, match="out has shape"):
        bridge.exp64(x, np.zeros((4, 3)), BACKEND)
    with pytest.raises(InputError, match=r"expected \(n, m\) and \(n,\)"):
        bridge.shifted_exp(x, np.zeros(4), BACKEND)
    with pytest.raises(InputError, match="strides"):
        bridge.shifted_exp(np.zeros((4, 3)).T, np.zeros(3), BACKEND)
    with pytest.raises(InputError, match="expected float64"):
        bridge.shifted_exp(x, np.zeros(3, np.float32), BACKEND)
    with pytest.raises(DeviceError, match=r"compute\.table_exp"):
        bridge.exp64(x)
    with pytest.raises(DeviceError, match="expected a CuPy array"):
        bridge.shifted_exp(x, np.zeros(3))
