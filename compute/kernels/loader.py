"""Where kernels run: on a device through CuPy, or on the CPU through the emulator.

Guarantees: float32 kernels keep subnormals on a device, because they are compiled here (compute.kernels.nvrtc) and
loaded as a cubin: CuPy's own compilation flushes them. Compiled kernels are kept for the life of the backend.
Does not: fall back in silence. Without a device, driver, or a GPU new enough, DeviceError says what was found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from compute.errors import DeviceError, NotInstalled
from compute.kernels import nvrtc, sources
from compute.kernels.emulator import EmulatedModule

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


class Emulator:
    """Kernels on NumPy arrays. schedule: one of `compute.kernels.emulator.SCHEDULES`."""

    def __init__(self, schedule: str = "in order", flags: Sequence[str] = ("-O1", "-ffp-contract=off")) -> None:
        self.xp: Any = np
        self.name, self.shared_limit = "the emulator", 227 * 1024
        self.schedule, self.flags = schedule, tuple(flags)
        self.edit: dict[str, str] = {}  # text replacements made in a source before it is compiled (planted faults)
        self._modules: dict[Any, EmulatedModule] = {}

    def function(self, family: str, fmt: str, name: str, d_k: int = 64, d_v: int = 64, shared: int = 0) -> Any:
        key = (family, fmt, d_k, d_v)
        if key not in self._modules:
            code = sources.text(family, fmt)
            for old, new in self.edit.items():
                assert old in code, f"nothing to edit: {old!r}"
                code = code.replace(old, new)
            names = sources.defines(fmt, d_k, d_v)
            self._modules[key] = EmulatedModule(code, names, flags=self.flags, schedule=self.schedule)
        return self._modules[key].get_function(name)

    def keep(self, array: Any) -> Any:
        return array

    def build(self, source: str, name: str) -> Any:
        return EmulatedModule(source, flags=self.flags, schedule=self.schedule).get_function(name)


class Device:
    """Kernels on CuPy arrays, on the current device. Raises DeviceError or NotInstalled when there is none."""

    def __init__(self) -> None:
        self.xp: Any = _cupy()
        self.number = int(self.xp.cuda.Device().id)
        properties = self.xp.cuda.runtime.getDeviceProperties(self.number)
        self.name = properties["name"].decode()
        self.capability = (int(properties["major"]), int(properties["minor"]))
        self.shared_limit = int(properties["sharedMemPerBlockOptin"])
        self._functions: dict[Any, Any] = {}
        self._modules: dict[Any, Any] = {}

    def function(self, family: str, fmt: str, name: str, d_k: int = 64, d_v: int = 64, shared: int = 0) -> Any:
        oldest = sources.FAMILIES[family].oldest
        if self.capability < oldest:
            raise DeviceError(
                f"kernel family {family!r} needs compute capability {oldest[0]}.{oldest[1]} or newer; "
                f"{self.name} has {self.capability[0]}.{self.capability[1]}: use another algorithm"
            )
        key = (family, fmt, d_k, d_v)
        if key not in self._modules:
            self._modules[key] = self._load(sources.text(family, fmt), sources.defines(fmt, d_k, d_v))
        if (key, name) not in self._functions:
            function = self._modules[key].get_function(name)
            if shared > 48 * 1024:
                # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.xp.cuda.driver.funcSetAttribute(function.ptr, 8, shared)
            self._functions[key, name] = function
        return self._functions[key, name]

    def build(self, source: str, name: str) -> Any:
        return self._load(source, ()).get_function(name)

    def keep(self, array: Any) -> Any:
        """A host array on the device, there for kernels of any stream once this returns."""
        kept = self.xp.asarray(array)
        self.xp.cuda.get_current_stream().synchronize()
        return kept

    def _load(self, code: str, defines: tuple[str, ...]) -> Any:
        arch = f"sm_{self.capability[0]}{self.capability[1]}"
        built = compile_cubin(code, defines, arch)
        module = self.xp.cuda.function.Module()
        try:
            module.load(built.code)
        except Exception as error:  # CUDADriverError, a type that only exists where CuPy is
            if "OUT_OF_MEMORY" in str(error):
                raise
            raise DeviceError(
                f"{self.name}'s driver refused a kernel compiled for {arch}: {error}. Expected a driver at least as "
                "new as the NVRTC that compiled it: update the driver, or pip install -e '.[cuda12]'"
            ) from error
        return module


def current() -> Device:
    """The kernels of CuPy's current device: made once a device, as modules belong to one.

    Raises DeviceError or NotInstalled without one.
    """
    return _on(int(_cupy().cuda.Device().id))


@cache
def _on(number: int) -> Device:
    del number  # of the current device: what the Device reads for itself
    return Device()


class Cubin:
    """A compiled module: its code, and per kernel the registers and bytes spilled that ptxas reported."""

    def __init__(self, code: bytes, log: str) -> None:
        self.code, self.log = code, log

    def usage(self) -> dict[str, dict[str, int]]:
        found = {}
        for part in self.log.split("Compiling entry function '")[1:]:
            registers, spilled = re.search(r"Used (\d+) registers", part), re.search(r"(\d+) bytes spill stores", part)
            if registers and spilled:
                found[part.split("'")[0]] = {"registers": int(registers[1]), "spill_bytes": int(spilled[1])}
        return found


@cache
def compile_cubin(code: str, defines: tuple[str, ...], arch: str) -> Cubin:
    """Compile with NVRTC for one architecture, subnormals kept. Needs no device.

    Raises NotInstalled without NVRTC, DeviceError with NVRTC's message when it refuses source or architecture.
    """
    options = [
        "--std=c++17",
        f"--gpu-architecture={arch}",
        "--ptxas-options=-v",
        "--ftz=false",
        "--prec-div=true",
        "--prec-sqrt=true",
        *(f"--define-macro={d}" for d in defines),
    ]
    try:
        return Cubin(*nvrtc.compile_source(code, options))
    except nvrtc.Refused as error:
        raise DeviceError(f"NVRTC refused the kernel for {arch}:\n{error}") from error


def _cupy() -> Any:
    mend = "pip install -e '.[cuda13]' (or cuda12)"
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise NotInstalled(f"CuPy is not installed: {mend}") from error
    except ImportError as error:
        raise NotInstalled(
            f"CuPy is installed but can't be loaded ({error}): {mend}; NumPy works without it"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"no usable GPU: {error}. A CUDA device and its driver are needed; NumPy works") from error
    if count == 0:
        raise DeviceError("CuPy finds no CUDA device; NumPy works without one")
    return cupy
