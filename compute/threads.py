"""Threads over independent tasks, with the BLAS library held to one thread meanwhile.

Guarantees: tasks never share what they write, so results don't depend on how many threads run; the BLAS library's
own thread count is put back when the last caller leaves.
Does not: control a BLAS library other than OpenBLAS (NumPy's wheels carry it); with another one, its own threads run
beside ours.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from compute.errors import InputError

_lock = threading.Lock()
_holders = 0
_before = 0


@functools.cache
def _openblas() -> tuple[Any, str, str] | None:
    """The OpenBLAS that NumPy carries, with the prefix and suffix of its names; None where it carries another BLAS."""
    home = Path(np.__file__).parent
    for folder in (home.parent / "numpy.libs", home / ".dylibs", home / ".libs"):
        for path in sorted(folder.glob("*openblas*")):
            try:
                library = ctypes.CDLL(str(path))
            except OSError:
                continue
            for prefix in ("scipy_openblas", "openblas"):
                for suffix in ("64_", "_64", ""):
                    if hasattr(library, f"{prefix}_set_num_threads{suffix}"):
                        return library, prefix, suffix
    return None


def _call(name: str) -> Any:
    found = _openblas()
    return None if found is None else getattr(found[0], f"{found[1]}_{name}{found[2]}", None)


def blas_kernel() -> str:
    """The name of the kernels OpenBLAS picked for this processor; 'unknown' where NumPy doesn't carry OpenBLAS."""
    name = _call("get_corename")
    if name is None:
        return "unknown"
    name.restype = ctypes.c_char_p
    return str(name().decode())


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread; callers may overlap and nest, the last one out restores the count."""
    global _holders, _before
    get, put = _call("get_num_threads"), _call("set_num_threads")
    if get is None or put is None:
        yield
        return
    with _lock:
        if _holders == 0:
            _before = get()
            put(1)
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                put(_before)


def count(threads: int | None) -> int:
    """How many threads to use: the number asked for, or the processors this process may use."""
    if threads is None:
        usable: Any = getattr(os, "process_cpu_count", None) or os.cpu_count
        if hasattr(os, "sched_getaffinity"):
            return max(1, len(os.sched_getaffinity(0)))
        return max(1, usable() or 1)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise InputError(
            f"threads is {threads!r}: expected a whole number, at least 1, or None for the processors there are"
        )
    return threads


def run(tasks: Sequence[Callable[[Any], None]], workspace: Callable[[], Any], threads: int) -> None:
    """Run every task once, each with a workspace that no other running task has. The first error is raised."""
    workers = min(threads, len(tasks))
    with one_blas_thread():
        if workers <= 1:
            space = workspace() if tasks else None
            for task in tasks:
                task(space)
            return
        following = iter(tasks)
        turn = threading.Lock()
        errors: list[BaseException] = []

        def work() -> None:
            space = workspace()
            while not errors:
                with turn:
                    task = next(following, None)
                if task is None:
                    return
                try:
                    task(space)
                except BaseException as error:
                    errors.append(error)

        helpers = [threading.Thread(target=work, daemon=True) for _ in range(workers - 1)]
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()
        if errors:
            raise errors[0]
