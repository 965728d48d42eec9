"""No GPU, no driver, too old a GPU, no memory, two devices: a clear error, and NumPy goes on working."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compute
from compute import Spec, canaries
from compute.arrays import device_errors as compute_errors
from compute.errors import DeviceError, InputError, NotInstalled
from compute.kernels import bridge, loader, nvrtc
from compute.kernels.emulator import compiler
from tests.compute import fake_cupy
from tests.compute.fake_cupy import State
from verify import errors
from verify.cli import main

RNG = np.random.default_rng(0)
Q, K, V, GRAD = (RNG.standard_normal(s) for s in ((2, 9, 8), (2, 11, 8), (2, 11, 8), (2, 9, 8)))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    fake = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(canaries, "_passed", set(canaries._passed))
    loader._on.cache_clear()
    yield fake
    State.device, State.before = 0, None
    loader._on.cache_clear()


@pytest.fixture(autouse=True)
def numpy_goes_on_working() -> Iterator[None]:
    want = compute.attention(Q, K, V)
    yield
    np.testing.assert_array_equal(compute.attention(Q, K, V), want)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """`attnproof bench` says so and returns 3; so does the loader."""
    assert main(["bench"]) == errors.NOT_INSTALLED
    said = capsys.readouterr().err
    for word in words:
        assert word in said
    assert "Traceback" not in said


class TestNoDevice:
    def test_cupy_is_not_installed(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setitem(sys.modules, "cupy", None)
        with pytest.raises(NotInstalled, match=r"pip install -e '\.\[cuda13\]'"):
            bridge.device()
        refused(capsys, "CuPy is not installed", "pip install -e '.[cuda13]'")

    def test_cupy_cannot_be_loaded(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        (tmp_path / "cupy.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))
        refused(capsys, "can't be loaded", "libcudart.so.13")

    def test_no_driver(self, cupy: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def none() -> int:
            raise fake_cupy.CUDARuntimeError("cudaErrorInsufficientDriver: driver is older than the runtime")

        monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", none)
        with pytest.raises(DeviceError, match="cudaErrorInsufficientDriver"):
            bridge.device()
        refused(capsys, "no usable GPU", "driver are needed", "NumPy works")

    def test_no_device(self, cupy: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", lambda: 0)
        refused(capsys, "no CUDA device")


class TestCompiler:
    """Which binding to NVRTC is used, and what is said without one."""

    @pytest.fixture(autouse=True)
    def afresh(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        nvrtc._binding.cache_clear()
        loader.compile_cubin.cache_clear()
        monkeypatch.setitem(sys.modules, "cuda", None)
        yield
        nvrtc._binding.cache_clear()
        loader.compile_cubin.cache_clear()

    def cupys(self, monkeypatch: pytest.MonkeyPatch, refuse: bool = False) -> list[Any]:
        """CuPy's binding, as far as it is used; returns what it is asked."""
        asked: list[Any] = []
        error = type("NVRTCError", (RuntimeError,), {})

        def build(program: int, options: Any) -> None:
            asked.append(options)
            if refuse:
                raise error("NVRTC_ERROR_COMPILATION (6)")

        binding = types.SimpleNamespace(
            NVRTCError=error,
            getVersion=lambda: (13, 0),
            createProgram=lambda code, name, headers, names: asked.append(code) or 7,
            compileProgram=build,
            getCUBIN=lambda program: b"cubin",
            getProgramLog=lambda program: "Compiling entry function 'f'\nUsed 9 registers\n0 bytes spill stores\n",
            destroyProgram=lambda program: asked.append("destroyed"),
        )
        module = types.ModuleType("cupy.cuda")
        module.nvrtc = binding  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cupy.cuda", module)
        monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
        return asked

    def test_cupys_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = self.cupys(monkeypatch)
        built = loader.compile_cubin("source", ("ST=float",), "sm_90")
        assert built.code == b"cubin"
        assert built.usage() == {"f": {"registers": 9, "spill_bytes": 0}}
        source, options, last = asked
        assert (source, last) == ("source", "destroyed")
        assert {"--gpu-architecture=sm_90", "--ftz=false", "--define-macro=ST=float"} <= set(options)
        assert not any("fast" in o or "ftz=true" in o for o in options)

    def test_a_source_that_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = self.cupys(monkeypatch, refuse=True)
        with pytest.raises(DeviceError, match=r"refused the kernel for sm_90(.|\n)*NVRTC_ERROR_COMPILATION"):
            loader.compile_cubin("source", (), "sm_90")
        assert asked[-1] == "destroyed"

    def test_no_binding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cupy", None)
        with pytest.raises(NotInstalled, match=r"needs NVRTC.*pip install -e '\.\[cuda13\]'.*CuPy: .*cuda-bindings: "):
            loader.compile_cubin("source", (), "sm_90")

    def test_no_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cupys(monkeypatch)

        def missing() -> None:
            raise RuntimeError("Failure finding libnvrtc.so")

        sys.modules["cupy.cuda"].nvrtc.getVersion = missing
        with pytest.raises(NotInstalled, match=r"libnvrtc\.so"):
            loader.compile_cubin("source", (), "sm_90")


def of_age(cupy: Any, monkeypatch: pytest.MonkeyPatch, major: int, minor: int) -> None:
    facts = {"name": b"an old card", "major": major, "minor": minor, "sharedMemPerBlockOptin": 232448}
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda number: facts)


class TestTooOld:
    def test_no_kernel_runs(
        self, cupy: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        of_age(cupy, monkeypatch, 7, 5)
        device = bridge.device()
        for family in ("simt", "mma", "montecarlo", "table_exp"):
            with pytest.raises(DeviceError, match=r"needs compute capability [89]\.0 or newer; an old card has 7\.5"):
                device.function(family, "float64", "attention_forward", 64, 64, 0)
        with pytest.raises(DeviceError, match=r"an old card has 7\.5"):
            compute.attention(*(cupy.asarray(a) for a in (Q, K, V)), algorithm="kernel")
        refused(capsys, "an old card", "7.5", "8.0 or newer")

    def test_the_tensor_core_kernel_is_not_chosen(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        of_age(cupy, monkeypatch, 8, 0)
        asked = []
        monkeypatch.setattr(
            loader.Device, "function", lambda self, family, *rest: asked.append(family) or (lambda *a, **b: None)
        )
        compute.attention(*(cupy.asarray(a) for a in (Q, K, V)), algorithm="kernel")
        of_age(cupy, monkeypatch, 9, 0)
        loader._on.cache_clear()
        compute.attention(*(cupy.asarray(a) for a in (Q, K, V)), algorithm="kernel")
        assert asked == ["simt", "mma"]

    def test_certificates_do_without_the_kernel(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        of_age(cupy, monkeypatch, 7, 5)
        c = compute.certify(*(cupy.asarray(a) for a in (Q, K, V)))
        assert c.output.host().contains(compute.certify(Q, K, V, tier="tight").output.mid).all()

    def test_a_compiler_that_refuses(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(code: str, defines: Any, arch: str) -> None:
            raise DeviceError(f"NVRTC refused the kernel for {arch}:\ninvalid value for --gpu-architecture")

        monkeypatch.setattr(loader, "compile_cubin", refuse)
        with pytest.raises(DeviceError, match="sm_90"):
            compute.attention(*(cupy.asarray(a) for a in (Q, K, V)), algorithm="kernel")

    def test_a_driver_older_than_the_compiler(self, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        class Module:
            def load(self, code: bytes) -> None:
                raise fake_cupy.CUDARuntimeError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")

        monkeypatch.setattr(loader, "compile_cubin", lambda *_: loader.Cubin(b"", ""))
        cupy.cuda.function = types.SimpleNamespace(Module=Module)
        with pytest.raises(DeviceError, match=r"stand-in's driver refused .* sm_90: CUDA_ERROR_INVALID_IMAGE.*update"):
            compute.attention(*(cupy.asarray(a) for a in (Q, K, V)), algorithm="kernel")

    def test_kernels_are_made_once_a_device(self, cupy: Any) -> None:
        first = bridge.device()
        assert bridge.device() is first
        with cupy.cuda.Device(1):
            other = bridge.device()
            assert other is not first
            assert other.number == 1
        assert bridge.device() is first


class TestTwoDevices:
    def on(self, cupy: Any, number: int, a: Any) -> Any:
        with cupy.cuda.Device(number):
            return cupy.asarray(a)

    @pytest.mark.parametrize("call", [compute.attention, compute.certify])
    def test_arrays_of_two(self, cupy: Any, call: Any) -> None:
        q, k = self.on(cupy, 0, Q), self.on(cupy, 1, K)
        with pytest.raises(InputError, match=r"q is on device 0 and k on device 1: expected one device.*Device\(0\)"):
            call(q, k, self.on(cupy, 0, V))

    @pytest.mark.parametrize("call", [compute.attention, compute.certify])
    @pytest.mark.parametrize("name", ["bias", "mask", "sink"])
    def test_a_companion_elsewhere(self, cupy: Any, call: Any, name: str) -> None:
        arrays = {"bias": np.zeros((9, 11)), "mask": np.ones((9, 11), bool), "sink": np.zeros(2)}
        q, k, v = (self.on(cupy, 0, a) for a in (Q, K, V))
        with pytest.raises(DeviceError, match=f"{name} is on device 1, and the current device is 0"):
            call(q, k, v, **{name: self.on(cupy, 1, arrays[name])})

    def test_a_gradient_elsewhere(self, cupy: Any) -> None:
        q, k, v = (self.on(cupy, 0, a) for a in (Q, K, V))
        grad = self.on(cupy, 1, GRAD)
        with pytest.raises(DeviceError, match="grad_output is on device 1"):
            compute.attention_backward(grad, q, k, v)
        with pytest.raises(DeviceError, match="grad_output is on device 1"):
            compute.certify(q, k, v, grad_output=grad)

    def test_another_device_than_the_current_one(self, cupy: Any) -> None:
        q, k, v = (self.on(cupy, 1, a) for a in (Q, K, V))
        with pytest.raises(DeviceError, match=r"q is on device 1, and the current device is 0.*Device\(1\)"):
            compute.attention(q, k, v)
        with cupy.cuda.Device(1):
            out = compute.attention(q, k, v)
            assert out.device.id == 1
            np.testing.assert_array_equal(out.inner, compute.attention(Q, K, V, threads=1))
            assert compute.certify(q, k, v).output.mid.device.id == 1

    def test_the_table_exp(self, cupy: Any) -> None:
        with pytest.raises(DeviceError, match="on device 1"):
            bridge.exp64(self.on(cupy, 1, -np.ones(3)))


ENTRY = ["at", "S", [["sym", "i"], ["sym", "j"]]]
SQUASH = {
    "version": 1,
    "inputs": [{"name": "S", "axes": ["n", "m"]}],
    "output": [["i", "n"]],
    "body": ["exp", ["sum", "j", ["num", 0, 1], ["add", ["sym", "m"], ["num", -1, 1]], ENTRY]],
}
SPEC = Spec(causal="bottom-right", scale=0.5)
CALLS = {
    **{
        f"attention, {name}": lambda q, k, v, g, name=name: [
            compute.attention(q, k, v, SPEC, algorithm=name, return_lse=True)[i] for i in (0, 1)
        ]
        for name in ("plain", "shifted", "online", "bounded", "kernel")
    },
    **{
        f"gradients, {name}": lambda q, k, v, g, name=name: [
            getattr(compute.attention_backward(g, q, k, v, SPEC, algorithm=name), d) for d in ("dq", "dk", "dv")
        ]
        for name in ("shifted", "online", "bounded", "kernel")
    },
    "certify": lambda q, k, v, g: [compute.certify(q, k, v, SPEC, tier="norm").output.mid],
    "certify with gradients": lambda q, k, v, g: [compute.certify(q, k, v, SPEC, grad_output=g).dk.mid],
    "a formula": lambda q, k, v, g: [compute.function_from(SQUASH)(q[0])],
}
FAILURES = {
    "pool": fake_cupy.OutOfMemoryError("Out of memory allocating 8,589,934,592 bytes"),
    "runtime": fake_cupy.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", CALLS)
def test_memory_that_runs_out_anywhere(cupy: Any, name: str, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation of a call in turn is the one that finds no memory: always a DeviceError, and nothing is left
    behind that would make the next call wrong."""
    try:
        compiler()
    except NotInstalled as error:
        pytest.skip(str(error))
    backend = fake_cupy.Kernels(cupy)
    monkeypatch.setattr(bridge, "device", lambda: backend)
    q, k, v, g = (cupy.asarray(a) for a in (Q, K, V, GRAD))
    count = 0

    def counting() -> None:
        nonlocal count
        count += 1

    if name.startswith("certify"):  # the canaries run once, and may be the ones that find no memory
        State.before = lambda: _raise(FAILURES[failure])
        canaries._passed.clear()
        with pytest.raises(DeviceError, match="out of device memory"):
            CALLS[name](q, k, v, g)
        State.before = None
    CALLS[name](q, k, v, g)
    State.before = counting
    want = [np.array(x.inner) for x in CALLS[name](q, k, v, g)]
    State.before = None
    most = 12 if "kernel" in name else 40
    steps = sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})
    assert count > 1
    for at in steps:
        left = at

        def failing() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise FAILURES[failure]

        State.before = failing
        with pytest.raises(DeviceError, match=r"out of device memory .*free_all_blocks") as caught:
            CALLS[name](q, k, v, g)
        State.before = None
        mend = {"certify": "fewer queries", "a formula": "fewer output entries"}.get(name.split(" w")[0], "'online'")
        assert mend in str(caught.value)
    for a, b in zip(CALLS[name](q, k, v, g), want, strict=True):
        np.testing.assert_array_equal(a.inner, b)


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("kind", ["CompileException", "CUBLASError", "NVRTCError"])
def test_other_refusals_of_a_device(cupy: Any, kind: str) -> None:
    arrays = [cupy.asarray(a) for a in (Q, K, V)]
    error = type(kind, (Exception,), {})
    State.before = lambda: _raise(error("no libnvrtc"))
    with pytest.raises(DeviceError, match=f"the device refused: {kind}: no libnvrtc; check the driver"):
        compute.attention(*arrays)


def test_a_mistake_of_ours_is_not_called_the_devices(cupy: Any) -> None:
    arrays = [cupy.asarray(a) for a in (Q, K, V)]
    State.before = lambda: _raise(ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        compute.attention(*arrays)


def test_the_table_exp_out_of_memory(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = fake_cupy.Kernels(cupy)
    monkeypatch.setattr(bridge, "device", lambda: backend)
    x = cupy.asarray(-np.ones((3, 4)))
    State.before = lambda: _raise(FAILURES["runtime"])
    with pytest.raises(
        DeviceError, match=r"^out of device memory .cudaErrorMemoryAllocation.*fewer rows at once"
    ) as told:
        bridge.exp64(x)
    State.before = None
    assert str(told.value).count("out of device memory") == 1
    with pytest.raises(DeviceError, match=r"^out of device memory .told already"), compute_errors(cupy):
        raise DeviceError("out of device memory (told already: cudaErrorMemoryAllocation)")
