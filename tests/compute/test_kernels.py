"""Our CUDA kernels, run by the emulator: right in every case, and every planted fault is caught."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compute.errors import InputError, NotInstalled
from compute.kernels import attention
from compute.kernels.emulator import SCHEDULES, EmulatedModule, EmulationError, compiler
from compute.kernels.loader import Emulator
from compute.kernels.sources import FAMILIES, FORMATS, hashes, text
from compute.spec import Rope, Spec
from tests.compute.kernel_cases import CASES, case, distance, reference

try:
    compiler()
except NotInstalled as error:  # pragma: no cover
    pytest.skip(str(error), allow_module_level=True)

ROOT = Path(__file__).parent.parent.parent
KINDS = [("simt", "float64"), ("simt", "float32"), ("simt", "float16"), ("simt", "bfloat16"), ("mma", "float64")]
# n u for sums of at most 128 terms, four of them in a row, and the format of what is stored.
ALLOWED = {"float64": 512 * 2.0**-53, "float32": 512 * 2.0**-24, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.fixture(scope="module")
def emulators() -> dict[str, Emulator]:
    return {name: Emulator(name) for name in SCHEDULES}


def run(backend: Any, p: attention.Problem, family: str, seed: int = 0) -> dict[str, float]:
    """Distance of everything a kernel family computes from the reference."""
    rng = np.random.default_rng(seed)
    out, lse = attention.forward(backend, p, family, poison=True)
    grad = rng.standard_normal(out.shape).astype(out.dtype)
    grad_lse = rng.standard_normal(lse.shape).astype(lse.dtype)
    got = {"out": out, "lse": lse, **attention.backward(backend, p, out, lse, grad, grad_lse, family)}
    want = reference(p, grad, grad_lse)
    assert set(got) == set(want)
    return {name: distance(got[name], want[name]) for name in want}


@pytest.mark.parametrize(("family", "fmt"), KINDS)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_formula(emulators: dict[str, Emulator], family: str, fmt: str, name: str) -> None:
    # Scores of some hundreds turn a score's rounding error into that much relative error of a weight.
    slack = 256 if name == "large scores" else 1
    errors = run(emulators["in order"], case(name, fmt), family)
    assert max(errors.values()) <= slack * ALLOWED[fmt], errors


@pytest.mark.parametrize("schedule", [s for s in SCHEDULES if s != "in order"])
@pytest.mark.parametrize("family", ["simt", "mma"])
def test_every_schedule_gives_the_same_bits(emulators: dict[str, Emulator], family: str, schedule: str) -> None:
    p = case("everything", "float64")
    first = attention.forward(emulators["in order"], p, family)
    again = attention.forward(emulators[schedule], p, family)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("family", "fmt"), [("simt", "float32"), ("mma", "float64")])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_behind_a_mask_are_inert(emulators: dict[str, Emulator], family: str, fmt: str, bad: float) -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, 1, 40, 16)).astype(fmt) for _ in range(3))
    mask = np.ones((40, 40), bool)
    mask[:, 7] = False
    mask[11] = False
    clean = attention.problem(np, q, k, v, Spec(), mask)
    k2, v2, q2 = k.copy(), v.copy(), q.copy()
    k2[0, 0, 7], v2[0, 0, 7], q2[0, 0, 11] = bad, bad, bad
    dirty = attention.problem(np, q2, k2, v2, Spec(), mask)
    backend = emulators["in order"]
    grad = rng.standard_normal((1, 1, 40, 16)).astype(fmt)
    grad_dirty = grad.copy()
    grad_dirty[0, 0, 11] = bad
    for p, g in ((clean, grad), (dirty, grad_dirty)):
        out, lse = attention.forward(backend, p, family)
        grads = attention.backward(backend, p, out, lse, g, None, family)
        if p is clean:
            want = (out, lse, grads)
    np.testing.assert_array_equal(out, want[0])
    np.testing.assert_array_equal(lse, want[1])
    for name in ("dq", "dk", "dv"):
        np.testing.assert_array_equal(grads[name], want[2][name])


@pytest.mark.parametrize(("family", "fmt"), [("simt", "float32"), ("mma", "float64")])
def test_a_visible_nan_is_not_hidden(emulators: dict[str, Emulator], family: str, fmt: str) -> None:
    p = case("plain", fmt)
    p.v[0, 0, 5, 3] = np.nan
    out, _ = attention.forward(emulators["in order"], p, family)
    assert np.isnan(out[0, :2, :, 3]).all()
    assert np.isfinite(out[0, :2, :, 4]).all()


def test_empty_rows_follow_the_spec(emulators: dict[str, Emulator]) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 1, 4, 8)) for _ in range(3))
    mask = np.array([[True] * 4, [False] * 4, [True] * 4, [False] * 4])
    for family, empty, value in itertools.product(("simt", "mma"), ("zero", "nan"), (None,)):
        del value
        p = attention.problem(np, q, k, v, Spec(empty_row=empty), mask)
        out, lse = attention.forward(emulators["in order"], p, family)
        assert np.isneginf(lse[0, 0, [1, 3]]).all()
        rows = out[0, 0, [1, 3]]
        assert np.isnan(rows).all() if empty == "nan" else (rows == 0).all()


def test_head_sizes(emulators: dict[str, Emulator]) -> None:
    """Head sizes that no lane count divides, and the two-sweep path of the tensor-core backward pass."""
    for family, d_k, d_v in (("simt", 5, 3), ("simt", 128, 64), ("mma", 8, 24), ("mma", 80, 64)):
        errors = run(emulators["in order"], case("ragged", "float64", d_k, d_v), family)
        assert max(errors.values()) <= ALLOWED["float64"], (family, d_k, d_v, errors)


def test_float32_keeps_subnormals(emulators: dict[str, Emulator]) -> None:
    tiny = np.float32(2.0**-140)
    q = k = np.zeros((1, 1, 1, 8), np.float32)
    v = np.full((1, 1, 1, 8), tiny)
    out, _ = attention.forward(emulators["in order"], attention.problem(np, q, k, v, Spec()))
    assert (out == tiny).all()


def test_half_formats_round_as_numpy_and_ml_dtypes_do() -> None:
    """Every 16-bit pattern through float and back, and floats around every rounding boundary."""
    code = """
    extern "C" __global__ void through(const ST* from, float* wide, const float* x, ST* narrow, int n) {
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        wide[i] = (float)from[i];
        narrow[i] = (ST)x[i];
      }
    }"""
    rng = np.random.default_rng(0)
    for fmt in ("float16", "bfloat16"):
        dtype = FORMATS[fmt].dtype
        every = np.arange(65536, dtype=np.uint16).view(dtype)
        near = every.astype(np.float32).view(np.uint32)[:, None] + np.array([0, 1, 4095, 4096, 4097, 32768], np.uint32)
        x = np.concatenate([near.ravel(), rng.integers(0, 2**32, 65536, dtype=np.uint32)]).view(np.float32)
        from_ = np.resize(every, x.size)
        wide, narrow = np.zeros(x.size, np.float32), np.zeros(x.size, dtype)
        module = EmulatedModule(code, (f"ST={FORMATS[fmt].storage}",))
        module.get_function("through")((4,), (64,), (from_, wide, x, narrow, np.int32(x.size)))
        np.testing.assert_array_equal(wide, from_.astype(np.float32))
        with np.errstate(over="ignore", invalid="ignore"):
            np.testing.assert_array_equal(narrow.astype(np.float32), x.astype(dtype).astype(np.float32))


# Planted faults: (family, what, text replaced, replacement). Each is one a person could write.
_SIMT_FAULTS = {
    "no barrier before the keys": ("    __syncthreads();\n    load_rows<BN, HD", "    load_rows<BN, HD"),
    "no barrier after the keys": ("k, j0, m);\n    __syncthreads();\n    AT s", "k, j0, m);\n    AT s"),
    "no barrier before the values": ("    __syncthreads();\n    const int odd", "    const int odd"),
    "barrier reached by half a block": (
        "    __syncthreads();\n    const int odd",
        "    if (threadIdx.x < 64) __syncthreads();\n    const int odd",
    ),
    "sum over half the lanes": ("w <<= 1) part +=", "w <<= 2) part +="),
    "maximum over half the lanes": ("w <<= 1) t = larger", "w <<= 2) t = larger"),
    "keys beyond the end take part": ("if (i >= n || j >= m) return false;", "if (i >= n) return false;"),
    "accumulator not rescaled": ("++c) acc[i][c] *= shrink;", "++c) acc[i][c] *= 1;"),
    "sum not rescaled": ("sum[i] = sum[i] * shrink + part;", "sum[i] = sum[i] + part;"),
    "maximum forgotten": ("      top[i] = t;\n      #pragma", "      #pragma"),
    "causal off by one": ("if (gap > high ||", "if (gap >= high ||"),
    "causal corner ignored": ("const int gap = j - i;", "const int gap = j - i + (n - m);"),
    "window one too wide": ("gap < low)", "gap < low - 1)"),
    "masked weight multiplied": ("if (!odd || !is_masked(w[i]))", "if (true)"),
    "sink left out of the log-sum-exp": ("sum[i] = sum[i] * factor + exp_(x - t);", "sum[i] = sum[i] * factor;"),
    "log-sum-exp without the maximum": ("top[i] + log_(sum[i])", "log_(sum[i])"),
    "wrong key head": (
        "kv_head = head / groups;\n  const Meaning call = MEANING_OF(head);\n  q += head * n * HD; o",
        "kv_head = head % heads % (heads / groups) + head / heads * (heads / groups);\n"
        "  const Meaning call = MEANING_OF(head);\n  q += head * n * HD; o",
    ),
    "gradient ignores the log-sum-exp's": ("sum -= dlse[at];", "sum -= 0;"),
    "softcap's slope left out": ("slope = scale * ((AT)1 - t * t);", "slope = scale;"),
    "delta left out": ("p * (dp[i][j] - delta[query]) * slope", "p * dp[i][j] * slope"),
    "one head of the group": ("for (int g = 0; g < groups; ++g) {", "for (int g = 0; g < 1; ++g) {"),
    "rows before the window skipped": ("return end < 0 ? 0 : (end < n ? end : n);", "return 0;"),
}
_MMA_FAULTS = {
    "no barrier before the keys": (
        "    __syncthreads();\n    load_rows<COLS, HD, THREADS>(Ks",
        "    load_rows<COLS, HD, THREADS>(Ks",
    ),
    "row halves swapped": ("x[2 * i] = a[g * lda", "x[2 * i] = a[(g + 8) * lda"),
    "weights in the wrong order": ("{w[n][0], w[n][2], w[n][1], w[n][3]}", "{w[n][0], w[n][1], w[n][2], w[n][3]}"),
    "values of the wrong key": ("b[(n * 8 + 2 * t + 1) * ldb", "b[(n * 8 + 2 * t) * ldb"),
    "maximum over two lanes": ("best = larger(best, __shfl_xor_sync(FULL_WARP, best, 2));", ""),
    "sum over two lanes": ("total += __shfl_xor_sync(FULL_WARP, total, 2);", ""),
    "accumulator not rescaled": ("acc[c][2 * high] *= shrink; acc", "acc"),
    "odd column masked by the even one": ("j0 + n8 * 8 + 2 * t + i)) x", "j0 + n8 * 8 + 2 * t)) x"),
    "masked inf not skipped": ("if (!is_masked(low)) acc", "acc"),
    "second row's output lost": ("to[(size_t)row * D + c * 8 + 2 * t + 1] = acc[c][2 * high + 1];", ""),
    "dK keeps one head": (
        "for (int group = 0; group < groups; ++group) {",
        "for (int group = 0; group < 1; ++group) {",
    ),
    "gradient's sign": ("(ds[n8][i] - delta[query])", "(ds[n8][i] + delta[query])"),
}
FAULTS = [("simt", "float32", *f) for f in _SIMT_FAULTS.items()] + [("mma", "float64", *f) for f in _MMA_FAULTS.items()]


def poisoned(fmt: str) -> attention.Problem:
    """A masked key whose values are inf, so that a weight that is multiplied instead of selected shows."""
    p = case("mask and sink", fmt)
    mask = p.mask.copy()
    mask[..., 9] = 0
    p.v[:, :, 9] = np.inf
    p.k[:, :, 9] = np.nan
    return replace(p, mask=mask)


def caught(backend: Emulator, family: str, fmt: str) -> bool:
    names = ("everything", "window", "causal with past", "large scores")
    for p in (*(case(name, fmt) for name in names), poisoned(fmt)):
        clean = np.isfinite(p.v).all()
        try:
            if clean:
                errors = run(backend, p, family)
            else:
                out, _ = attention.forward(backend, p, family, poison=True)
                errors = {"out": 0.0 if np.isfinite(out).all() else float("inf")}
        except EmulationError:
            return True
        slack = 256 if p.spec.scale == 40.0 else 1
        if max(errors.values()) > slack * ALLOWED[fmt]:
            return True
    return False


@pytest.mark.parametrize(("family", "fmt", "what", "edit"), FAULTS, ids=[f"{f[0]}: {f[2]}" for f in FAULTS])
def test_planted_faults_are_caught(family: str, fmt: str, what: str, edit: tuple[str, str]) -> None:
    for schedule in ("in order", "first warp ahead", "last warp ahead", "shuffled"):
        backend = Emulator(schedule, flags=("-O0", "-ffp-contract=off"))
        backend.edit = dict([edit])
        if caught(backend, family, fmt):
            return
    pytest.fail(f"{what}: no schedule and no case shows it")


def test_the_unedited_kernels_pass_what_faults_are_caught_by() -> None:
    for family, fmt in (("simt", "float32"), ("mma", "float64")):
        for schedule in ("in order", "first warp ahead", "last warp ahead", "shuffled"):
            assert not caught(Emulator(schedule), family, fmt)


_SANITIZED = """
import numpy as np
from compute.kernels import attention, table_exp
from compute.kernels.loader import Emulator
from tests.compute.kernel_cases import case
import sys
backend = Emulator(flags=("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
if sys.argv[1] == "broken":
    backend.edit = {"if (first + r < count) {": "if (true) {"}
if sys.argv[1] == "broken exp":
    backend.edit = {"if (j < columns) target[j]": "target[j]"}
exp_backend = Emulator() if sys.argv[1] == "broken" else backend
x = np.concatenate([-np.arange(1000.0), [np.nan, -np.inf, 1.0, np.inf, -1e308, -0.0]])
table_exp.shifted_exp64(exp_backend, np.stack([x] * 3)[:, :999], np.zeros(3))
table_exp.exp64(exp_backend, x, x)
for family in ("simt", "mma"):
    p = case("everything", "float64")
    out, lse = attention.forward(backend, p, family)
    attention.backward(backend, p, out, lse, out, None, family)
print("clean")
"""


def _sanitizer(name: str) -> str:
    found = subprocess.run([compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


@pytest.mark.parametrize("kind", ["whole", "broken", "broken exp"])
def test_address_and_undefined_behaviour_sanitizers(kind: str) -> None:
    library = _sanitizer("libasan.so")
    if not os.path.isabs(library):
        pytest.skip("the compiler has no address sanitizer: install libasan")
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0,detect_stack_use_after_return=0",
        "PYTHONPATH": str(ROOT),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", _SANITIZED, kind]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if kind == "whole":
        assert done.returncode == 0, done.stderr[-2000:]
        assert "clean" in done.stdout
    else:
        assert done.returncode != 0
        assert "AddressSanitizer" in done.stderr


def test_sources_and_hashes() -> None:
    assert set(hashes()) == set(FAMILIES)
    for name, family in FAMILIES.items():
        for fmt in family.formats:
            code = text(name, fmt)
            for function in family.functions:
                assert f"{function}(" in code
    with pytest.raises(InputError, match="has no format"):
        text("mma", "float16")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": Spec(rope=Rope())}, "RoPE"),
        ({"spec": Spec(empty_row="mean")}, "empty row"),
        ({"spec": Spec(groups=3)}, "groups"),
        ({"mask": np.ones((4, 4), np.int8)}, "bool"),
        ({"sink": np.zeros(3)}, "one logit"),
        ({"k": np.zeros((1, 2, 4, 9))}, "fit together"),
        ({"q": np.zeros((1, 2, 4, 8), np.float32)}, "one dtype"),
        ({"q": np.zeros((2, 4, 8))}, "batch, heads"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {name: np.zeros((1, 2, 4, 8)) for name in ("q", "k", "v")}
    with pytest.raises(InputError, match=message):
        attention.problem(np, **{**arrays, "spec": Spec(), **change})
