"""A stand-in for CuPy on NumPy's arrays, as strict as CuPy where the two differ.

Arrays refuse to become NumPy arrays by themselves and to meet them in an operation; only functions that CuPy has
exist. Arrays lie on a device, and an operation on those of another than the current one is refused. Results are
NumPy's, so a call through it must give NumPy's bits. It says nothing about a real device.
"""

from __future__ import annotations

import ctypes
import operator
import time
import types
from typing import Any

import numpy as np

FUNCTIONS = """abs absolute add all any arange argmax argwhere asarray ascontiguousarray broadcast_arrays broadcast_to
ceil clip concatenate copysign cos divide einsum empty empty_like exp exp2 expm1 flatnonzero fmin frexp
full full_like isfinite isnan ldexp log log1p log2 matmul max maximum min minimum multiply nextafter
ones power repeat rint sign sin sqrt stack subtract sum tanh where zeros zeros_like"""
REFUSED = (np.ndarray,)
REDUCTIONS = ("max", "min", "sum", "any", "all", "mean", "argmax")
NARROW = ("float32", "bfloat16")


class State:
    """The current device, and what is called before each operation (to make one fail)."""

    device = 0
    before: Any = None


class OutOfMemoryError(MemoryError):
    """CuPy's, by its name."""

    __module__ = "cupy.cuda.memory"


class CUDARuntimeError(RuntimeError):
    """CuPy's, by its name."""

    __module__ = "cupy_backends.cuda.api.runtime"


class Device:
    """cupy.cuda.Device: the current one, or a numbered one to be entered."""

    def __init__(self, number: int | None = None) -> None:
        self.id = State.device if number is None else number

    def __enter__(self) -> Device:
        self.before, State.device = State.device, self.id
        return self

    def __exit__(self, *_: object) -> None:
        State.device = self.before


def unwrap(x: Any) -> Any:
    if isinstance(x, ndarray):
        if x.device.id != State.device:
            raise ValueError(f"Array device must be same as the current device: {x.device.id} and {State.device}")
        return x.inner
    if isinstance(x, REFUSED) and x.ndim:
        raise TypeError(f"Unsupported type {type(x)}")
    if isinstance(x, (tuple, list)):
        return type(x)(unwrap(i) for i in x)
    return x


def wrap(x: Any) -> Any:
    if isinstance(x, (np.ndarray, np.generic)):
        return ndarray(np.asarray(x))
    return tuple(wrap(i) for i in x) if isinstance(x, tuple) else x


def lifted(function: Any) -> Any:
    def call(*args: Any, **given: Any) -> Any:
        if State.before is not None:
            State.before()
        out = given.get("out")
        result = function(*(unwrap(a) for a in args), **{k: unwrap(v) for k, v in given.items()})
        return out if out is not None else wrap(result)

    return call


class ndarray:
    __module__ = "cupy"

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.device = Device()

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self.inner.ctypes.data)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name in REDUCTIONS:
            return lambda axis=None, dtype=None, out=None, keepdims=False: wrap(value(axis=axis, keepdims=keepdims))
        return lifted(value) if callable(value) and name != "dtype" else wrap(value) if name == "T" else value

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True) -> Any:
        """Flushes numbers that are subnormal in float32 on the way from or to it, as CuPy's compilation does."""
        new = self.inner.astype(dtype, copy=copy)
        if new.dtype != self.inner.dtype and (str(self.inner.dtype) in NARROW or str(new.dtype) in NARROW):
            new = np.where(np.abs(self.inner.astype(np.float64)) < 2.0**-126, np.zeros((), new.dtype), new)
        return ndarray(new)

    def __array__(self, *args: Any, **given: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **given: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        return lifted(ufunc)(*args, **given)

    def __getitem__(self, key: Any) -> Any:
        return wrap(self.inner[unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.inner[unwrap(key)] = unwrap(value)

    def __bool__(self) -> bool:
        return bool(self.inner)

    def __float__(self) -> float:
        return float(self.inner)

    def __int__(self) -> int:
        return int(self.inner)

    def __iter__(self) -> Any:
        return (wrap(x) for x in self.inner)

    def __len__(self) -> int:
        return len(self.inner)


def _operator(name: str) -> None:
    function = getattr(operator, name)
    setattr(ndarray, f"__{name}__", lambda a, b: lifted(function)(a, b))
    setattr(ndarray, f"__r{name}__", lambda a, b: lifted(function)(b, a))

    def in_place(a: ndarray, b: Any) -> ndarray:
        a.inner = getattr(operator, f"i{name}", function)(a.inner, unwrap(b))
        return a

    setattr(ndarray, f"__i{name}__", in_place)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    _operator(_name) if not _name.endswith("_") else None
for _name, _function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
    setattr(ndarray, f"__{_name}__", lambda a, b, f=_function: lifted(f)(a, b))
    setattr(ndarray, f"__r{_name}__", lambda a, b, f=_function: lifted(f)(b, a))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ndarray, f"__{_name}__", lambda a, b, f=getattr(operator, _name): lifted(f)(a, b))
for _name in ("neg", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", lambda a, f=getattr(operator, _name): lifted(f)(a))
ndarray.__hash__ = None  # type: ignore[assignment]


def _at(pointer: int, shape: tuple[int, int], leading: int) -> Any:
    """A matrix of float64 at an address, stored by columns as BLAS does."""
    span = (shape[1] - 1) * leading + shape[0]
    memory = np.ctypeslib.as_array((ctypes.c_double * span).from_address(pointer))
    return np.lib.stride_tricks.as_strided(memory, shape, (8, 8 * leading))


def dgemm_strided_batched(
    handle: Any, transa: int, transb: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, stride_a: int,
    b: int, ldb: int, stride_b: int, beta: int, c: int, ldc: int, stride_c: int, count: int,
) -> None:  # fmt: skip
    """cublasDgemmStridedBatched without transposition: C_j ← A_j·B_j, m by k and k by n, all by columns."""
    if State.before is not None:
        State.before()
    assert (handle, transa, transb) == ("handle", 0, 0)
    assert lda >= m
    assert ldb >= k
    assert ldc >= m
    one, zero = (ctypes.c_double.from_address(x).value for x in (alpha, beta))
    assert (one, zero) == (1.0, 0.0)
    for j in range(count):
        left, right = _at(a + 8 * j * stride_a, (m, k), lda), _at(b + 8 * j * stride_b, (k, n), ldb)
        _at(c + 8 * j * stride_c, (m, n), ldc).T[...] = right.T @ left.T


def module() -> types.ModuleType:
    """The stand-in as a module named cupy."""
    State.device, State.before = 0, None
    cupy = types.ModuleType("cupy")
    cupy.ndarray = ndarray  # type: ignore[attr-defined]
    for name in FUNCTIONS.split():
        setattr(cupy, name, lifted(getattr(np, name)))
    cupy.__version__ = "0 (stand-in)"  # type: ignore[attr-defined]
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: 2,
        getDeviceProperties=lambda number: {
            "name": b"stand-in",
            "major": 9,
            "minor": 0,
            "sharedMemPerBlockOptin": 232448,
        },
        runtimeGetVersion=lambda: 0,
        driverGetVersion=lambda: 0,
    )
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        runtime=runtime,
        cublas=types.SimpleNamespace(dgemmStridedBatched=dgemm_strided_batched),
        device=types.SimpleNamespace(get_cublas_handle=lambda: "handle"),
    )  # type: ignore[attr-defined]
    for name in ("float32", "float64", "int64", "uint8", "nan", "inf"):
        setattr(cupy, name, getattr(np, name))
    cupy.asarray = lambda x, dtype=None: ndarray(np.asarray(x.inner if isinstance(x, ndarray) else x, dtype=dtype))  # type: ignore[attr-defined]
    cupy.asnumpy = lambda x: x.inner  # type: ignore[attr-defined]

    def copyto(target: ndarray, source: Any, where: Any = None) -> None:
        np.copyto(target.inner, unwrap(source), where=True if where is None else unwrap(where))

    class ElementwiseKernel:
        """Runs the operation, which is valid Python too, on whole arrays."""

        def __init__(self, inputs: str, output: str, operation: str, name: str) -> None:
            self.inputs = [p.split()[1] for p in inputs.split(",")]
            self.output, self.operation = output.split()[1], compile(operation, name, "exec")

        def __call__(self, *args: Any) -> None:
            *given, out = (unwrap(a) for a in args)
            assert len(given) == len(self.inputs)
            assert len({a.dtype for a in (*given, out)}) == 1, "T is one type"
            scope: dict[str, Any] = {"exp": np.exp, "exp2": np.exp2, **dict(zip(self.inputs, given, strict=True))}
            exec(self.operation, scope)
            out[...] = scope[self.output]

    class ReductionKernel:
        """A sum of the mapped operands along an axis."""

        def __init__(
            self, inputs: str, output: str, mapped: str, reduced: str, last: str, identity: str, name: str
        ) -> None:
            assert (reduced, last, identity) == ("a + b", f"{output.split()[1]} = a", "0"), "only sums are imitated"
            self.inputs, self.mapped = [p.split()[1] for p in inputs.split(",")], compile(mapped, name, "eval")

        def __call__(self, *args: Any, axis: int) -> Any:
            return wrap(eval(self.mapped, dict(zip(self.inputs, map(unwrap, args), strict=True))).sum(axis=axis))

    cupy.ReductionKernel = ReductionKernel  # type: ignore[attr-defined]
    cupy.ElementwiseKernel = ElementwiseKernel  # type: ignore[attr-defined]
    cupy.copyto = copyto  # type: ignore[attr-defined]
    return cupy


class Kernels:
    """Our kernels on the stand-in's arrays: a backend whose launches run in the emulator."""

    capability = (9, 0)

    def __init__(self, cupy: types.ModuleType) -> None:
        from compute.kernels.loader import Emulator

        self.xp: Any = cupy
        self.emulator = Emulator()
        self.name, self.shared_limit = self.emulator.name, self.emulator.shared_limit

    def function(self, *args: Any) -> Any:
        return self._lifted(self.emulator.function(*args))

    def keep(self, array: Any) -> Any:
        return self.xp.asarray(array)

    def build(self, source: str, name: str) -> Any:
        return self._lifted(self.emulator.build(source, name))

    def _lifted(self, kernel: Any) -> Any:
        def launch(grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
            assert not any(isinstance(a, np.ndarray) for a in args), "a device can't read the host's memory"
            kernel(grid, block, [a.inner if isinstance(a, ndarray) else a for a in args], shared_mem=shared_mem)

        return launch


def with_events(cupy: types.ModuleType) -> types.ModuleType:
    """What a device check asks of CuPy besides: events, kernels' attributes, memory, the device's facts."""

    class Event:
        def record(self) -> None:
            self.at = time.perf_counter()

        def synchronize(self) -> None:
            assert hasattr(self, "at"), "an event that was never recorded"

    facts = {"multiProcessorCount": 1, "totalGlobalMem": 1 << 30}
    properties = cupy.cuda.runtime.getDeviceProperties
    cupy.cuda.runtime.getDeviceProperties = lambda number: properties(number) | facts
    cupy.cuda.Event = Event
    cupy.cuda.get_elapsed_time = lambda a, b: (b.at - a.at) * 1e3
    cupy.cuda.get_current_stream = lambda: types.SimpleNamespace(synchronize=lambda: None)
    cupy.cuda.driver = types.SimpleNamespace(
        funcGetAttribute=lambda attribute, pointer: {4: 32, 3: 0}[attribute],
        funcSetAttribute=lambda pointer, attribute, value: {8: None}[attribute],
    )
    cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: None)  # type: ignore[attr-defined]
    return cupy


def emulated_module(code: str, defines: Any) -> Any:
    """What compute.kernels.loader.Device loads, run by the emulator on the stand-in's arrays."""
    from compute.kernels.emulator import EmulatedModule

    module = EmulatedModule(code, defines)

    class Function:
        ptr = 1

        def __init__(self, name: str) -> None:
            self.kernel = module.get_function(name)

        def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
            assert type(grid) is type(block) is type(args) is tuple
            assert not any(isinstance(a, np.ndarray) for a in args), "a device can't read the host's memory"
            assert all(isinstance(a, (ndarray, np.generic)) for a in args), "a number has a size of its own"
            self.kernel(grid, block, [a.inner if isinstance(a, ndarray) else a for a in args], shared_mem=shared_mem)

    return types.SimpleNamespace(get_function=Function)
