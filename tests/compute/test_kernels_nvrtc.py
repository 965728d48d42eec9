"""Every kernel is accepted by the pinned NVRTC for every architecture that has its instructions."""

from __future__ import annotations

import importlib.util
import json
import re
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
    from compute.kernels.loader import compile_cubin
    from compute.kernels.nvrtc import compile_source

    code = 'extern "C" __global__ void f(float* x) { x[0] = x[0] * 0.5f; }'
    common = ["--std=c++17", "--gpu-architecture=sm_90"]
    built = {ftz: _instructions(compile_source(code, [*common, f"--ftz={ftz}"])[0]) for ftz in ("false", "true")}
    assert built["false"] != built["true"]
    assert _instructions(compile_cubin(code, (), "sm_90").code) == built["false"]


@pytest.mark.parametrize("fmt", ["float16", "bfloat16"])
def test_16_bit_formats_are_converted_by_the_device(fmt: str) -> None:
    """Their conversions are instructions of the device, rounded to nearest, and no header is asked for."""
    from compute.kernels.sources import FORMATS, text

    code = text("simt", fmt) + 'extern "C" __global__ void f(ST* x, float y) { x[0] = (ST)((AT)x[1] + y); }'
    assert "#include" not in code
    macros = "".join(f"#define {d}\n" for d in (f"ST {FORMATS[fmt].storage}", "AT float", "HD 64", "HV 64"))
    assert f"cvt.rn.{'f16' if fmt == 'float16' else 'bf16'}.f32" in _ptx(macros + code)


def _instructions(cubin: bytes, section: str = ".text.f") -> bytes:
    """The bytes of a section of a cubin, which is an ELF file of 64 bits."""
    table, count, names = struct.unpack_from("<Q", cubin, 40)[0], *struct.unpack_from("<HH", cubin, 60)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * i) for i in range(count)]
    for name, _, _, _, start, size in headers:
        at = headers[names][4] + name
        if cubin[at : cubin.index(b"\0", at)] == section.encode():
            return cubin[start : start + size]
    raise AssertionError(f"the cubin has no section {section}")


# Of an instruction of sm_80 and newer: bits 0 to 8 name the operation, 9 to 11 where its operands come from.
DMUL, DADD, DFMA = 0x028, 0x029, 0x02B
PLAIN = 'extern "C" __global__ void f(double* x, double y) { x[0] = %s; }'


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_table_exp_has_no_fused_operation(arch: str) -> None:
    """Its proof is about single operations. Seen in PTX and in the machine's code, which ptxas could still fuse."""
    from compute.kernels.loader import compile_cubin
    from compute.kernels.sources import defines, text
    from compute.kernels.table_exp import EACH

    def operations(code: str) -> list[int]:
        built = compile_cubin(code, defines("float64"), arch).code
        name = ".text.table_exp" if "table_exp" in code else ".text.f"
        part = _instructions(built, name)
        return [int.from_bytes(part[i : i + 2], "little") & 0x1FF for i in range(0, len(part), 16)]

    assert DFMA in operations(PLAIN % "x[0] * y + x[1]"), "the compiler fuses where it may, and this sees it"
    assert DFMA not in operations(PLAIN % "__dadd_rn(__dmul_rn(x[0], y), x[1])")
    code = text("table_exp", "float64")
    found = operations(code)
    assert DFMA not in found
    # One instruction for each rounded operation of the source, four entries a thread; some compilers write the loop
    # twice, without the shift's subtraction where there is none.
    once = EACH * len(re.findall(r"__d(?:add|sub|mul)_rn\(", re.sub(r"//.*", "", code)))
    assert found.count(DADD) + found.count(DMUL) in (once, 2 * once - EACH)


def test_the_table_exp_has_no_fused_operation_in_ptx() -> None:
    from compute.kernels.sources import text

    assert "fma.rn.f64" in _ptx(PLAIN % "x[0] * y + x[1]")
    found = _ptx(text("table_exp", "float64"))
    assert "add.rn.f64" in found
    assert "fma.rn.f64" not in found
    assert "ld.global.nc.v2" in found, "head and tail in one read"


def _ptx(code: str) -> str:
    from cuda.bindings import nvrtc

    def checked(answer: Any) -> Any:
        assert answer[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS, answer
        return answer[-1]

    program = checked(nvrtc.nvrtcCreateProgram(code.encode(), b"kernel.cu", 0, [], []))
    options = [b"--std=c++17", b"--gpu-architecture=compute_90"]
    checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    found = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
    checked(nvrtc.nvrtcGetPTX(program, found))
    return found.decode()
