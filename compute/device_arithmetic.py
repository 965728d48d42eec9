"""What a certificate rests on where the arrays are CuPy's: the exp it uses, and the arithmetic its canaries test.

Guarantees: exp is the table exp of compute.table_exp, whose error is a theorem (CUDA states no bound for its own), by
our kernel where it can be compiled, else by CuPy's additions and multiplications, to the same bits; matrix products
that cuBLAS emulates in fixed point are refused where the environment or the handle asks for them.
Does not: see an emulation that neither asks for, beyond what the canaries see.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from compute.arrays import Array, Namespace
from compute.canaries import Arithmetic, require
from compute.errors import CanaryFailed, DeviceError, NotInstalled
from compute.kernels.blas import batches, column_blocks
from compute.table_exp import exp64

EMULATED = 8  # CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH, a bit of cublasMath_t
_SWITCH = "CUBLAS_EMULATE_DOUBLE_PRECISION"


def exps() -> tuple[Callable[..., Array], Callable[[Array, Array], Any] | None]:
    """(exp with out=, exp of scores less their row's shift in place), on the current device."""
    from compute.kernels import bridge

    try:
        bridge.ready("table_exp")
    except (NotInstalled, DeviceError):  # no compiler, or a device too old for the kernel
        return exp64, None
    return bridge.exp64, bridge.shifted_exp


def arithmetic(xp: Namespace, exp_ulp: float) -> Arithmetic:
    """The device's operations between host arrays, with products large enough to reach its fast kernels."""
    exp, _ = exps()

    def there_and_back(operation: Callable[..., Array]) -> Callable[..., Any]:
        return lambda *arrays: xp.asnumpy(operation(*(xp.asarray(a) for a in arrays)))

    return Arithmetic(there_and_back(xp.matmul), there_and_back(exp), there_and_back(xp.add), exp_ulp, 8)


def ensure(xp: Namespace, exp_ulp: float) -> None:
    """The canaries on the current device, once a process and device. Raises CanaryFailed."""
    refuse_emulation()
    key = (*environment(xp), exp_ulp)
    require(key, lambda: arithmetic(xp, exp_ulp), "device")
    if batches(xp):
        require((*key, "batch"), lambda: replace(arithmetic(xp, exp_ulp), matmul=_by_blocks(xp)), "device")


def _by_blocks(xp: Namespace) -> Callable[..., Any]:
    """The product that Tier 1 makes of blocks of keys: by halves of the inner axis, in one strided batch."""

    def product(a: Any, b: Any) -> Any:
        half = a.shape[1] // 2
        parts = column_blocks(xp, xp.asarray(a), xp.asarray(np.ascontiguousarray(b)).reshape(2, half, -1), 0, 2)
        assert parts is not None
        return xp.asnumpy(parts[0] + parts[1])

    return product


def refuse_emulation() -> None:
    """CanaryFailed if cuBLAS is asked to emulate float64 products by integer or low-precision ones."""
    if os.environ.get(_SWITCH, "0").strip() not in ("", "0"):
        raise CanaryFailed(
            f"{_SWITCH} is {os.environ[_SWITCH]!r}: cuBLAS may replace float64 products by fixed-point ones, whose "
            "error assumption A3 does not bound; expected it unset or 0, then start again"
        )
    if (math_mode() or 0) & EMULATED:
        raise CanaryFailed(
            "the cuBLAS handle is in a math mode that emulates float64 products: expected the default one, as "
            "cupy.cuda.cublas.setMathMode(cupy.cuda.device.get_cublas_handle(), 0)"
        )


def math_mode() -> int | None:
    """The math mode of CuPy's cuBLAS handle on the current device; None where CuPy has none to show."""
    try:
        cublas: Any = import_module("cupy_backends.cuda.libs.cublas")
        handle = import_module("cupy.cuda.device").get_cublas_handle()
    except (ImportError, AttributeError):
        return None
    return int(cublas.getMathMode(handle))


def environment(xp: Namespace) -> tuple[object, ...]:
    """What the device's arithmetic depends on: CuPy, the device, its runtime and driver."""
    return (int(xp.cuda.Device().id), *versions(xp).values())


def versions(xp: Namespace) -> dict[str, str]:
    """CuPy, device, driver and runtime for a certificate."""
    runtime = xp.cuda.runtime
    name = runtime.getDeviceProperties(xp.cuda.Device().id)["name"]
    return {
        "CuPy": str(xp.__version__),
        "device": name.decode() if isinstance(name, bytes) else str(name),
        "CUDA runtime": str(runtime.runtimeGetVersion()),
        "CUDA driver": str(runtime.driverGetVersion()),
    }
