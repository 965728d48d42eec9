"""NVRTC, NVIDIA's compiler library, by whichever binding to it is installed: CuPy's own, or cuda-bindings.

Guarantees: source and options reach the compiler as given. CuPy's compile functions would append -ftz=true, and the
last one wins: float32 kernels would lose subnormal numbers in silence.
Does not: need a device or a driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from compute.errors import NotInstalled


class Refused(Exception):
    """The compiler's message."""


class _Binding(Protocol):
    def __call__(self, code: str, options: Sequence[str]) -> tuple[bytes, str]: ...


def compile_source(code: str, options: Sequence[str]) -> tuple[bytes, str]:
    """(cubin, log). Raises Refused with the compiler's words, NotInstalled without a binding or without NVRTC."""
    return _binding()(code, options)


@cache
def _binding() -> _Binding:
    missing = []
    for name, find in (("CuPy", _cupys), ("cuda-bindings", _nvidias)):
        try:
            return find()
        except (ImportError, RuntimeError) as error:  # RuntimeError: the library itself is not found
            missing.append(f"{name}: {error}")
    raise NotInstalled(
        "compiling CUDA kernels needs NVRTC, by CuPy or cuda-bindings: pip install -e '.[cuda13]' (or cuda12). "
        + "; ".join(missing)
    )


def _cupys() -> _Binding:
    from cupy.cuda import nvrtc

    nvrtc.getVersion()  # the library is looked for at the first call

    def build(code: str, options: Sequence[str]) -> tuple[bytes, str]:
        program = nvrtc.createProgram(code, "kernel.cu", (), ())
        try:
            nvrtc.compileProgram(program, tuple(options))
            return bytes(nvrtc.getCUBIN(program)), str(nvrtc.getProgramLog(program))
        except nvrtc.NVRTCError as error:
            raise Refused(f"{nvrtc.getProgramLog(program)}{error}") from error
        finally:
            nvrtc.destroyProgram(program)

    return build


def _nvidias() -> _Binding:
    from cuda.bindings import nvrtc

    success = nvrtc.nvrtcResult.NVRTC_SUCCESS

    def value(answer: tuple[Any, ...]) -> Any:
        if answer[0] != success:
            raise Refused(str(nvrtc.nvrtcGetErrorString(answer[0])[1]))
        return answer[-1]

    def read(size: Any, fill: Any, program: Any) -> bytes:
        held = bytes(value(size(program)))
        value(fill(program, held))
        return held

    value(nvrtc.nvrtcVersion())

    def build(code: str, options: Sequence[str]) -> tuple[bytes, str]:
        program = value(nvrtc.nvrtcCreateProgram(code.encode(), b"kernel.cu", 0, [], []))
        try:
            answer = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
            log = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
            if answer[0] != success:
                raise Refused(f"{log}{nvrtc.nvrtcGetErrorString(answer[0])[1]!r}")
            return read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
        finally:
            nvrtc.nvrtcDestroyProgram(program)

    return build
