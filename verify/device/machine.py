"""Where the check runs: a CUDA device, or the emulator with the same calls.

Guarantees: timings are medians of repeated runs between events on a device, after warm-up.
Does not: give meaningful timings in the emulator (they are run to exercise the code).
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from compute.errors import DeviceError
from compute.kernels.loader import Device, Emulator
from compute.kernels.sources import FAMILIES, FORMATS


class Machine:
    """A backend with timing. device: "cuda" or "emulator".

    Raises DeviceError or NotInstalled where no kernel of ours can run: no device, no driver, too old a GPU.
    """

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"
        self.backend: Any = _new_enough(Device()) if self.cuda else Emulator()
        self.xp = self.backend.xp

    def free(self) -> None:
        """Give back the memory that CuPy keeps from what was computed so far."""
        if self.cuda:
            self.xp.get_default_memory_pool().free_all_blocks()

    def facts(self) -> dict[str, Any]:
        """What the device is, and the versions of what was used."""
        found: dict[str, Any] = {"numpy": np.__version__}
        if self.cuda:
            runtime = self.xp.cuda.runtime
            properties = runtime.getDeviceProperties(self.xp.cuda.Device().id)
            found |= {
                "name": self.backend.name,
                "compute_capability": list(self.backend.capability),
                "multiprocessors": int(properties["multiProcessorCount"]),
                "memory_bytes": int(properties["totalGlobalMem"]),
                "cupy": self.xp.__version__,
                "cuda_runtime": runtime.runtimeGetVersion(),
                "cuda_driver": runtime.driverGetVersion(),
            }
        return found

    def host(self, array: Any) -> Any:
        return self.xp.asnumpy(array) if self.cuda else np.asarray(array)

    def draw(self, rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.xp.asarray(rng.standard_normal(shape).astype(dtype))

    def families(self) -> list[tuple[str, str]]:
        """(family, format) of attention kernels that run here; bfloat16 only where ml_dtypes is installed."""
        newest = self.backend.capability if self.cuda else (99, 0)
        known = [fmt for fmt in FORMATS if fmt != "bfloat16" or importlib.util.find_spec("ml_dtypes")]
        able = [f for f in FAMILIES.values() if f.is_attention and f.oldest <= newest]
        return [(f.name, fmt) for f in able for fmt in f.formats if fmt in known]

    def seconds(self, run: Callable[[], Any], repeats: int = 7) -> float:
        """Median seconds of one call."""
        if not self.cuda:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        for _ in range(3):
            run()
        events = [self.xp.cuda.Event() for _ in range(repeats + 1)]
        events[0].record()
        for i in range(repeats):
            run()
            events[i + 1].record()
        events[-1].synchronize()
        elapsed = [self.xp.cuda.get_elapsed_time(a, b) for a, b in itertools.pairwise(events)]
        return float(np.median(elapsed)) * 1e-3


def _new_enough(device: Device) -> Device:
    oldest = min(f.oldest for f in FAMILIES.values())
    if device.capability < oldest:
        has, needed = (".".join(map(str, version)) for version in (device.capability, oldest))
        raise DeviceError(
            f"{device.name} has compute capability {has}: our kernels need {needed} or newer; "
            "compute's CuPy algorithms and NumPy work"
        )
    return device
