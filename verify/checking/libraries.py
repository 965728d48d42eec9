"""Arrays of NumPy, PyTorch, JAX and CuPy, to and fro.

Guarantees: a target gets fresh copies, never a view of the check's own arrays; bfloat16 and fp8 keep their bits;
a library is imported only when it is asked for.
Does not: choose devices by itself, or share memory for speed.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from verify.checking.calls import Array, Memory, dtype_of, lay_out
from verify.errors import MissingError

INSTALL = {"torch": "pip install torch", "jax": "pip install jax", "cupy": "pip install -e '.[cuda13]' (or cuda12)"}
_SAME_BITS = {"bfloat16": np.int16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


def library(name: str, device: str = "cpu") -> Library:
    """The library called `name`. Raises MissingError when it is not installed."""
    if name == "numpy":
        return Library()
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise MissingError(f"{name} is not installed: {INSTALL.get(name, f'pip install {name}')}") from error
    if name == "cupy" and device == "cpu":
        device = "cuda"
    return {"torch": Torch, "jax": Jax, "cupy": Cupy}[name](module, device)


class Library:
    """NumPy. The other libraries override what differs."""

    name = "numpy"

    def __init__(self, module: Any = np, device: str = "cpu") -> None:
        self.module, self.device = module, device

    def give(self, array: Array, memory: Memory = "contiguous") -> Any:
        """A fresh array of this library."""
        return lay_out(array, memory)

    def owns(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def take(self, value: Any) -> Array:
        """A NumPy copy of an array of this library."""
        return np.array(value)

    def describe(self) -> dict[str, str]:
        """Version, and the precision switches that change the algorithm."""
        return {"numpy": np.__version__}

    def state(self) -> dict[str, Any]:
        """Global state that a target must leave alone."""
        return {}


class Torch(Library):
    """PyTorch, on the CPU or a GPU."""

    name = "torch"

    def give(self, array: Array, memory: Memory = "contiguous") -> Any:
        torch = self.module
        laid = lay_out(array, "contiguous" if memory == "reversed" else memory)
        if laid.dtype.name in _SAME_BITS:
            tensor = torch.from_numpy(laid.view(_SAME_BITS[laid.dtype.name])).view(getattr(torch, laid.dtype.name))
        else:
            tensor = torch.from_numpy(laid) if laid.flags.writeable else torch.from_numpy(laid.copy())
        return tensor if self.device == "cpu" else tensor.to(self.device)

    def owns(self, value: Any) -> bool:
        return isinstance(value, self.module.Tensor)

    def take(self, value: Any) -> Array:
        tensor = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        name = str(tensor.dtype).removeprefix("torch.")
        if name in _SAME_BITS:
            same = {1: self.module.uint8, 2: self.module.int16}[tensor.element_size()]
            return np.array(tensor.view(same).numpy()).view(dtype_of(name))
        return np.array(tensor.numpy())

    def describe(self) -> dict[str, str]:
        torch = self.module
        return {
            "torch": torch.__version__,
            "float32 matmul precision": torch.get_float32_matmul_precision(),
            "TF32 in cuBLAS": str(torch.backends.cuda.matmul.allow_tf32),
            "threads": str(torch.get_num_threads()),
        }

    def state(self) -> dict[str, Any]:
        torch = self.module
        return {
            "torch random state": hash(torch.random.get_rng_state().numpy().tobytes()),
            "torch default dtype": str(torch.get_default_dtype()),
            "torch grad mode": torch.is_grad_enabled(),
            "torch threads": torch.get_num_threads(),
            "torch deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "torch float32 matmul precision": torch.get_float32_matmul_precision(),
        }


class Jax(Library):
    """JAX; float64 arrays turn its 64-bit types on."""

    name = "jax"

    def give(self, array: Array, memory: Memory = "contiguous") -> Any:
        if array.dtype == np.float64:
            self.module.config.update("jax_enable_x64", True)
        return self.module.numpy.asarray(lay_out(array, "contiguous"))

    def owns(self, value: Any) -> bool:
        return isinstance(value, self.module.Array)

    def describe(self) -> dict[str, str]:
        config = self.module.config
        return {
            "jax": self.module.__version__,
            "default matmul precision": str(config.jax_default_matmul_precision),
            "64-bit types": str(config.jax_enable_x64),
        }


class Cupy(Library):
    """CuPy, on a GPU."""

    name = "cupy"

    def give(self, array: Array, memory: Memory = "contiguous") -> Any:
        return self.module.asarray(lay_out(array, memory))

    def owns(self, value: Any) -> bool:
        return isinstance(value, self.module.ndarray)

    def take(self, value: Any) -> Array:
        return np.array(self.module.asnumpy(value))

    def describe(self) -> dict[str, str]:
        return {"cupy": self.module.__version__}


def as_numpy(value: Any) -> Array:
    """A NumPy copy of an array of any library, by its type or through DLPack; gradients are left behind.

    Raises TypeError for what is no array.
    """
    for name, kind in (("torch", Torch), ("jax", Jax), ("cupy", Cupy)):
        module = sys.modules.get(name)
        if module is not None and kind(module).owns(value):
            return kind(module).take(value)
    if isinstance(value, np.ndarray) or np.isscalar(value):
        return np.array(value)
    if hasattr(value, "__dlpack__"):
        return np.array(np.from_dlpack(value))
    if hasattr(value, "__array__"):
        return np.array(value)
    raise TypeError(f"got {type(value).__name__}: expected an array of NumPy, PyTorch, JAX or CuPy")
