"""CUDA sources run on a CPU: `EmulatedModule` has the call shape of `cupy.RawModule`, over NumPy arrays.

Guarantees: the very sources that a GPU gets are compiled, as C++17 with `emulator.h`; several schedules of the
threads of a block can be asked for, so that a missing barrier shows.
Does not: show hardware rounding, races between blocks, or speed. Needs GCC or Clang on x86-64.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compute.errors import NotInstalled

HERE = Path(__file__).parent
SCHEDULES = {"in order": 0, "reversed": 1, "shuffled": 2, "first warp ahead": 3, "last warp ahead": 4}
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
_SHARED = "thread_local __attribute__((aligned(16))) unsigned char shared_bytes[232448];\n"


def compiler() -> str:
    """The C++ compiler to use. Raises NotInstalled when there is none, or the machine is not x86-64."""
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if platform.machine() not in ("x86_64", "AMD64") or os.name != "posix":
        raise NotInstalled("the kernel emulator needs x86-64 with the System V calling convention (Linux or macOS)")
    if not found:
        raise NotInstalled("the kernel emulator needs a C++17 compiler: install g++ or clang++, or set CXX")
    return found


class EmulationError(RuntimeError):
    """A kernel broke CUDA's rules: a barrier or a warp operation that part of the threads did not reach."""


class EmulatedModule:
    """Compiled kernels. code: CUDA C++. defines: as "ST=float". flags: of the compiler.

    Raises NotInstalled without a compiler, RuntimeError with the compiler's message when the code is refused.
    """

    def __init__(
        self,
        code: str,
        defines: Sequence[str] = (),
        *,
        flags: Sequence[str] = ("-O1", "-ffp-contract=off"),
        schedule: str = "in order",
        threads: int = 1,
    ) -> None:
        self.schedule, self.threads = SCHEDULES[schedule], threads
        self._library = ctypes.CDLL(str(_build(code, tuple(defines), tuple(flags))))

    def get_function(self, name: str) -> Callable[..., None]:
        """A callable (grid, block, args, shared_mem=0); args are contiguous NumPy arrays and NumPy scalars."""
        symbol = getattr(self._library, f"{name}_emulated")
        symbol.restype = ctypes.c_char_p

        def launch(grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_mem: int = 0) -> None:
            assert shared_mem <= 232448, "more shared memory than a block can have"
            shape = (ctypes.c_uint * 6)(*(tuple(grid) + (1, 1, 1))[:3], *(tuple(block) + (1, 1, 1))[:3])
            kept = [np.asarray(a.ctypes.data if isinstance(a, np.ndarray) else a) for a in args]
            pointers = (ctypes.c_void_p * len(kept))(*(a.ctypes.data for a in kept))
            failure = symbol(shape, self.schedule, self.threads, pointers)
            if failure:
                raise EmulationError(f"{name}: {failure.decode()}")

        return launch


def _build(code: str, defines: tuple[str, ...], flags: tuple[str, ...]) -> Path:
    cxx = compiler()
    body = re.sub(r"\bextern\s+__shared__[^;]*;", "", code)
    exports = "".join(f"EMULATED_KERNEL({name})\n" for name in _KERNEL.findall(code))
    source = f'#include "emulator.h"\n{_SHARED}{body}\n{exports}'
    header = (HERE / "emulator.h").read_text(encoding="utf-8")
    key = hashlib.sha256(repr((source, header, defines, flags, cxx)).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"attnproof-emulator-{os.getuid() if hasattr(os, 'getuid') else 0}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{key}.so"
    if not library.exists():
        _compile(cxx, source, defines, flags, library)
    return library


def _compile(cxx: str, source: str, defines: tuple[str, ...], flags: tuple[str, ...], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as work:
        unit, made = Path(work) / "kernel.cpp", Path(work) / "kernel.so"
        unit.write_text(source, encoding="utf-8")
        command = [cxx, "-std=c++17", "-shared", "-fPIC", "-pthread", "-Wno-unknown-pragmas", f"-I{HERE}"]
        command += [*flags, *(f"-D{d}" for d in defines), str(unit), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{cxx} refused the kernel:\n{done.stderr[-3000:]}")
        made.replace(library)
