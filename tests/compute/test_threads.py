"""Threads: the same bits for every count, BLAS given back, memory within its limit."""

import threading
import tracemalloc

import numpy as np
import pytest

import compute
from compute import Spec
from compute.errors import InputError
from compute.threads import _call, blas_kernel, count, one_blas_thread, run


@pytest.mark.parametrize("algorithm", ["online", "bounded"])
def test_the_same_bits_for_every_thread_count(algorithm):
    rng = np.random.default_rng(0)
    q, grad = rng.normal(size=(2, 4, 1100, 16)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, 1100, 16)).astype(np.float32)
    spec = Spec(causal=True)
    bias = rng.normal(size=(1, 1, 1100)).astype(np.float32)
    for given in ({}, {"bias": bias}):
        seen = []
        for threads in (1, 2, 3, 8):
            out, lse = compute.attention(q, k, v, spec, **given, return_lse=True, algorithm=algorithm, threads=threads)
            g = compute.attention_backward(grad, q, k, v, spec, **given, algorithm=algorithm, threads=threads)
            seen.append([out, lse, g.dq, g.dk, g.dv, g.dbias, g.dscale])
        for other in seen[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(seen[0], other, strict=True) if a is not None)


def blas_threads():
    get = _call("get_num_threads")
    return None if get is None else get()


def test_blas_is_held_and_given_back():
    before = blas_threads()
    if before is None:
        assert blas_kernel() == "unknown"
        return
    with one_blas_thread():
        assert blas_threads() == 1
        with one_blas_thread():
            assert blas_threads() == 1
        assert blas_threads() == 1
    assert blas_threads() == before
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert blas_threads() == before
    compute.attention(*np.ones((3, 2, 40, 4)), algorithm="online", threads=2)
    assert blas_threads() == before


def test_every_task_runs_once_with_a_space_of_its_own():
    done, lock, inside = [], threading.Lock(), set()

    def task(number):
        def call(space):
            with lock:
                assert id(space) not in inside
                inside.add(id(space))
            done.append(number)
            with lock:
                inside.discard(id(space))

        return call

    for threads in (1, 2, 5, 100):
        done.clear()
        run([task(i) for i in range(40)], object, threads)
        assert sorted(done) == list(range(40))
    run([], object, 4)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_task_is_raised_and_ends_the_rest(threads):
    def fail(space):
        raise InputError("row 3")

    later = []
    with pytest.raises(InputError, match="row 3"):
        run([fail] * 3 + [lambda s: later.append(1)] * 50, object, threads)
    assert len(later) < 50
    q = np.ones((2, 1100, 4))
    with pytest.raises(InputError, match="empty_row"):
        compute.attention(q, q, q, Spec(empty_row="error"), key_lengths=0, algorithm="online", threads=threads)


def test_counts():
    assert count(3) == 3
    assert count(None) >= 1
    for bad in (0, -1, True, 2.0, "2"):
        with pytest.raises(InputError):
            count(bad)


def beside(call):
    """Most bytes held at once beside what the call returns."""
    call()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        held = call()
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del held
    return peak - max(now, before)


@pytest.mark.parametrize(("dtype", "n", "d"), [(np.float32, 6000, 64), (np.float64, 2500, 128)])
def test_working_memory_stays_below_8_megabytes(dtype, n, d):
    rng = np.random.default_rng(0)
    q, k, v, grad = rng.normal(size=(4, 1, n, d)).astype(dtype)
    limit = 8 * 2**20
    for algorithm in ("online", "bounded"):
        for given in ({}, {"spec": Spec(causal=True, window=(900, None), softcap=9.0), "sink": 0.5}):
            assert beside(lambda: compute.attention(q, k, v, **given, algorithm=algorithm, threads=1)) < limit  # noqa: B023
    bias = rng.normal(size=(1, n)).astype(dtype)
    mask = rng.random((1, n)) > 0.5
    assert beside(lambda: compute.attention(q, k, v, bias=bias, mask=mask, algorithm="online", threads=1)) < limit
    out, lse = compute.attention(q, k, v, return_lse=True, algorithm="bounded", threads=1)
    saved = {"output": out, "lse": lse, "algorithm": "online", "threads": 1}
    assert beside(lambda: compute.attention_backward(grad, q, k, v, **saved)) < limit
