"""The pieces of the main job that can run anywhere: functions of plain arguments, and the pool that runs them.

Guarantees: a task is a module-level function whose arguments and result can be pickled; workers are spawned, never
forked; when the job is interrupted or fails, they are stopped; with one worker, tasks run here, in order.
Does not: know what the results are for.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from verify.errors import MissingError


@dataclass(frozen=True)
class Task:
    """One piece of work: the section it belongs to, a label for people, the function and its arguments."""

    section: str
    label: str
    run: Callable[..., Any]
    arguments: tuple[Any, ...]


def completed(tasks: Sequence[Task], workers: int) -> Iterator[tuple[Task, Any]]:
    """Run tasks, started in the order given, and yield (task, result) as each ends. Errors of a task are raised."""
    if workers <= 1:
        for task in tasks:
            yield task, task.run(*task.arguments)
        return
    with _pool(workers) as pool:
        running: dict[Future[Any], Task] = {pool.submit(t.run, *t.arguments): t for t in tasks}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    before = set(multiprocessing.active_children())
    with _one_thread_each():
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        pool.shutdown()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Children inherit one BLAS thread each, so that workers do not crowd each other out; ours is left as it is."""
    added = [name for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS") if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def workers_here() -> int:
    """As many workers as this process may use cores, at most 8."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return max(1, min(8, usable))


# -- the tasks ------------------------------------------------------------------------------------------------------


def prove(claim_id: str) -> Any:
    """The verdict of a claim."""
    import derive

    return derive.claim(claim_id).prove()


def check(claim_id: str, seed: int, draws: int) -> Any:
    """The cross-check of a claim."""
    from verify.crosschecks import crosscheck

    return crosscheck(claim_id, seed=seed, draws=draws)


def study(name: str, options: dict[str, Any]) -> Any:
    """The result of a study, or the MissingError that says what it lacks."""
    from verify.studies.run import study as run

    try:
        return run(name, **options)
    except MissingError as missing:
        return missing
