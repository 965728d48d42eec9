"""Which array library a call runs on, and which number types it takes.

Guarantees: the library follows the inputs; CuPy is never imported here (a CuPy array can only exist where CuPy is
loaded already); a call that mixes libraries is refused; a device's own errors become DeviceError.
Does not: move data between a GPU and the host, or accept lists, tensors of other libraries, or integer arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from compute.errors import ComputeError, DeviceError, InputError

Array: TypeAlias = Any  # a NumPy or a CuPy array; the two share the methods used here
Namespace: TypeAlias = Any  # the module `numpy` or `cupy`

FLOATS = ("float16", "bfloat16", "float32", "float64")


def library(array: Array) -> str | None:
    """'numpy', 'cupy', or None for anything else."""
    if isinstance(array, np.ndarray):
        return "numpy"
    root = type(array).__module__.partition(".")[0]
    return "cupy" if root == "cupy" and "cupy" in sys.modules else None


def home(array: Array) -> Namespace:
    """The library of one array; numpy for a number."""
    return sys.modules["cupy"] if library(array) == "cupy" else np


def namespace(**arrays: Array) -> Namespace:
    """The one library that all arrays (None is skipped) belong to.

    Raises InputError when an argument is no array, when two libraries are mixed, or CuPy arrays of two devices;
    DeviceError when they lie on a device that is not CuPy's current one, where results would be made.
    """
    found: dict[str, str] = {}
    for name, array in arrays.items():
        if array is None:
            continue
        kin = library(array)
        if kin is None:
            kind = f"{type(array).__module__}.{type(array).__qualname__}"
            raise InputError(f"{name} is a {kind}: expected a NumPy or CuPy array, as numpy.asarray({name})")
        if isinstance(array, np.matrix):
            raise InputError(f"{name} is a numpy.matrix: expected a plain array, as numpy.asarray({name})")
        found.setdefault(kin, name)
    if len(found) > 1:
        raise InputError(
            f"{found['numpy']} is a NumPy array and {found['cupy']} a CuPy array: expected one library in a call; "
            "move one with cupy.asarray(...) or cupy.asnumpy(...)"
        )
    if "cupy" not in found:
        return np
    cupy = sys.modules["cupy"]
    _one_device(cupy, {name: int(a.device.id) for name, a in arrays.items() if a is not None})
    return cupy


def _one_device(cupy: Namespace, where: dict[str, int]) -> None:
    (first, number), *others = where.items()
    for name, other in others:
        if other != number:
            raise InputError(
                f"{first} is on device {number} and {name} on device {other}: expected one device in a call; move one, "
                f"as `with cupy.cuda.Device({number}): {name} = cupy.asarray({name})`"
            )
    current = int(cupy.cuda.Device().id)
    if number != current:
        raise DeviceError(
            f"{first} is on device {number}, and the current device is {current}: expected the call inside "
            f"`with cupy.cuda.Device({number}):`"
        )


def is_float(dtype: Any) -> bool:
    """Whether arrays of this dtype can be attended over: float16, bfloat16, float32, float64."""
    return str(dtype) in FLOATS


def work_dtype(dtype: Any) -> Any:
    """The dtype in which a call with this input dtype computes: float64 for float64, else float32."""
    return np.dtype(np.float64 if str(dtype) == "float64" else np.float32)


def widened(array: Array) -> Array:
    """A floating array as float64, exactly, subnormal numbers included.

    CuPy's own conversion of float32 and bfloat16 flushes subnormal numbers to 0, so there they are read by their bits.
    """
    name = str(array.dtype)
    if library(array) == "numpy" or name not in ("float32", "bfloat16"):
        return array.astype(np.float64, copy=False)
    xp = sys.modules["cupy"]
    array = xp.ascontiguousarray(array)
    if name == "bfloat16":
        array = (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    bits = array.view(np.int32)
    small = (bits & 0x7F800000) == 0
    tiny = xp.where(bits < 0, -1.0, 1.0) * (bits & 0x007FFFFF).astype(np.float64) * 2.0**-149
    return xp.where(small, tiny, array.astype(np.float64))


_NO_MEMORY = ("OutOfMemory", "OUT_OF_MEMORY", "MemoryAllocation", "ALLOC_FAILED")
_ONLINE = "use algorithm='online' (O(n) memory), or fewer heads a call"


@contextmanager
def device_errors(xp: Namespace, less_memory: str = _ONLINE) -> Iterator[None]:
    """Turn a device's own errors (out of memory, no driver, no compiler) into a DeviceError with the likely mend.

    less_memory: what would take less, said when the memory runs out.
    """
    if xp is np:
        yield
        return
    try:
        yield
    except ComputeError:
        raise
    except Exception as error:
        name = type(error).__name__
        said = f"{name}: {error}"
        if any(word in said for word in _NO_MEMORY):
            raise DeviceError(
                f"out of device memory ({error}): {less_memory}; what CuPy keeps from earlier calls goes back by "
                "cupy.get_default_memory_pool().free_all_blocks()"
            ) from error
        if name.startswith(("CUDA", "CUBLAS", "NVRTC", "Compile")):
            raise DeviceError(f"the device refused: {said}; check the driver and the device's health") from error
        raise
