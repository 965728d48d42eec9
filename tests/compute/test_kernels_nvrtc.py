"""Every kernel is accepted by the pinned NVRTC for every architecture that has its instructions."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.nvrtc

FILE = Path(__file__).parent.parent.parent / "benchmarks" / "kernel_usage.py"
spec = importlib.util.spec_from_file_location("kernel_usage", FILE)
assert spec is not None
assert spec.loader is not None
kernel_usage: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernel_usage)

TABLE: dict[str, dict[str, list[int]]] = json.loads(kernel_usage.TABLE.read_text(encoding="utf-8"))


def test_the_table_names_exactly_what_is_compiled() -> None:
    assert set(TABLE) == {kernel_usage.key(t) for t in kernel_usage.targets()}


@pytest.mark.parametrize("target", kernel_usage.targets(), ids=kernel_usage.key)
def test_registers_and_spills_are_those_of_the_table(target: tuple[str, str, int, str]) -> None:
    assert kernel_usage.usage(target) == TABLE[kernel_usage.key(target)]


def test_printed_formulas_compile() -> None:
    from compute.kernels.emit import emit
    from compute.kernels.loader import compile_cubin
    from compute.optree import check
    from tests.compute.test_kernels_emit import SCALARS, SCORES, scalar_tree

    for fmt in ("float64", "float32"):
        for body, _, _ in SCALARS.values():
            compile_cubin(emit(check(scalar_tree(body)), fmt, elementwise=True), (), "sm_90")
        compile_cubin(emit(check(SCORES), fmt), (), "sm_80")


def test_a_kernel_that_nvrtc_refuses_is_an_error_with_its_words() -> None:
    from compute.kernels.loader import compile_cubin

    with pytest.raises(RuntimeError, match="INFINITY"):
        compile_cubin('extern "C" __global__ void f(float* x) { x[0] = INFINITY; }', (), "sm_90")


def test_subnormals_are_kept() -> None:
    """What the loader builds is the code without flush-to-zero, and that differs from the code with it."""
    from cuda.core import Program, ProgramOptions

    from compute.kernels.loader import compile_cubin

    code = 'extern "C" __global__ void f(float* x) { x[0] = x[0] * 0.5f; }'
    built = {
        ftz: bytes(Program(code, "c++", ProgramOptions(std="c++17", arch="sm_90", ftz=ftz)).compile("cubin").code)
        for ftz in (False, True)
    }
    assert built[False] != built[True]
    assert _instructions(compile_cubin(code, (), "sm_90").code) == _instructions(built[False])


def _instructions(cubin: bytes) -> bytes:
    """The bytes of section .text.f of a cubin, which is an ELF file of 64 bits."""
    table, count, names = struct.unpack_from("<Q", cubin, 40)[0], *struct.unpack_from("<HH", cubin, 60)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * i) for i in range(count)]
    for name, _, _, _, start, size in headers:
        at = headers[names][4] + name
        if cubin[at : cubin.index(b"\0", at)] == b".text.f":
            return cubin[start : start + size]
    raise AssertionError("the cubin has no kernel f")
