"""Which kernels there are: their files, formats, and the machines they run on.

Guarantees: `text(...)` is the whole source a compiler gets, without any path; `hashes()` changes when a source does.
Does not: compile anything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compute.errors import InputError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Format:
    """A storage format and the type of all arithmetic done on it."""

    name: str
    storage: str  # C++ type in memory
    arithmetic: str  # C++ type of the arithmetic

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the storage."""
        if self.name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.name)

    @property
    def accumulator(self) -> np.dtype[Any]:
        return np.dtype(np.float64 if self.arithmetic == "double" else np.float32)


FORMATS = {
    f.name: f
    for f in (
        Format("float64", "double", "double"),
        Format("float32", "float", "float"),
        Format("float16", "binary16", "float"),
        Format("bfloat16", "bfloat16", "float"),
    )
}


@dataclass(frozen=True)
class Family:
    """Kernels that are compiled together. oldest: compute capability (major, minor) they need."""

    name: str
    files: tuple[str, ...]
    formats: tuple[str, ...]
    oldest: tuple[int, int]
    functions: tuple[str, ...]

    @property
    def is_attention(self) -> bool:
        """Whether its kernels depend on the head sizes, and are attention's forward and backward."""
        return self.functions == _ATTENTION


_ATTENTION = ("attention_forward", "attention_delta", "attention_backward_q", "attention_backward_kv")
FAMILIES = {
    f.name: f
    for f in (
        Family("simt", ("half.cuh", "common.cuh", "delta.cuh", "attention.cuh"), tuple(FORMATS), (8, 0), _ATTENTION),
        Family(
            "mma", ("common.cuh", "delta.cuh", "mma_f64.cuh", "attention_f64.cuh"), ("float64",), (9, 0), _ATTENTION
        ),
        Family(
            "montecarlo",
            ("philox.cuh", "montecarlo.cuh"),
            ("float64", "float32"),
            (8, 0),
            ("philox_words", "philox_uniforms", "philox_normals", "softmax_statistics", "score_moments"),
        ),
        Family("table_exp", ("table_exp.cuh",), ("float64",), (8, 0), ("table_exp",)),
    )
}


def text(family: str, fmt: str) -> str:
    """The source of a family for one format: all of it, no header of CUDA's is included."""
    kind = FAMILIES[family]
    if fmt not in kind.formats:
        raise InputError(f"kernel family {family!r} has no format {fmt!r}: it has {', '.join(kind.formats)}")
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in kind.files)


def defines(fmt: str, d_k: int = 64, d_v: int | None = None) -> tuple[str, ...]:
    """Macros that choose format and head size."""
    f = FORMATS[fmt]
    return (f"ST={f.storage}", f"AT={f.arithmetic}", f"HD={d_k}", f"HV={d_k if d_v is None else d_v}")


def hashes() -> dict[str, str]:
    """SHA-256 of every family's files, to tell which kernels changed since a device measured them."""
    return {
        name: hashlib.sha256(b"\0".join((HERE / file).read_bytes() for file in family.files)).hexdigest()
        for name, family in FAMILIES.items()
    }
