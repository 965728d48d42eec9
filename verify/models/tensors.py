"""Named tensors of a safetensors file, read on demand as float64.

Guarantees: a tensor is looked up by name under any of the layout's prefixes; what is missing, or not of the shape
that the layout needs, is an error that says what was found. Formats float64 to bfloat16 are widened exactly.
Does not: read quantised formats, pickles, or files cut into shards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verify.errors import UsageError

Array = npt.NDArray[np.float64]


class Tensors:
    """The tensors of one file. `prefix` is put in front of every name asked for."""

    def __init__(self, path: Path) -> None:
        import ml_dtypes  # noqa: F401  registers bfloat16 with NumPy, which safetensors needs
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            raise UsageError(f"no file {path}: expected a safetensors file")
        try:
            opened: Any = safe_open(str(path), framework="numpy")
        except SafetensorError as error:
            raise UsageError(f"{path} is not a safetensors file ({error})") from error
        self._file = opened
        self.path = path
        self.prefix = ""
        found: Any = self._file.keys()
        self.names: tuple[str, ...] = tuple(sorted(found))

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.names

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises UsageError when it isn't there."""
        self._demand(name)
        return tuple(self._file.get_slice(self.prefix + name).get_shape())

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """A whole tensor as float64. Raises UsageError when it is absent, not of this shape, or not of floats."""
        found = self.shape(name)
        if shape is not None and found != shape:
            raise UsageError(f"{self.path.name}: tensor {self.prefix + name} has shape {found}, expected {shape}")
        return self._floats(name, self._file.get_tensor(self.prefix + name))

    def rows(self, name: str, index: npt.NDArray[np.int64]) -> Array:
        """Some rows of a tensor, as an embedding table; reads only these."""
        self._demand(name)
        table = self._file.get_slice(self.prefix + name)
        distinct, place = np.unique(index, return_inverse=True)
        gathered = np.concatenate([self._floats(name, table[int(i) : int(i) + 1]) for i in distinct])
        picked: Array = gathered[place.reshape(index.shape)]
        return picked

    def _demand(self, name: str) -> None:
        if name not in self:
            raise UsageError(f"{self.path.name} has no tensor {self.prefix + name}; {self.listing()}")

    def _floats(self, name: str, array: Any) -> Array:
        kind = np.dtype(array.dtype)
        if kind.kind != "f" and kind.name != "bfloat16":
            raise UsageError(f"{self.path.name}: tensor {self.prefix + name} holds {kind}: expected floats")
        wide: Array = np.asarray(array, dtype=np.float64)
        return wide

    def listing(self, most: int = 12) -> str:
        """The names found, cut after some."""
        if not self.names:
            return "it holds no tensors"
        more = f" and {len(self.names) - most} more" if len(self.names) > most else ""
        return f"its tensors are {', '.join(self.names[:most])}{more}"
