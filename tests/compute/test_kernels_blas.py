"""Products of column blocks by one strided batch of cuBLAS, on a stand-in that reads memory as BLAS does."""

from __future__ import annotations

import ctypes
import itertools
import sys
from typing import Any

import numpy as np
import pytest

from compute import block_sums, canaries, device_arithmetic
from compute.errors import CanaryFailed
from compute.kernels.blas import column_blocks
from compute.table_exp import exp64
from tests.compute import fake_cupy


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


def made(rows: int, count: int, block: int, c: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([rows, count, block, c])
    return rng.standard_normal((rows, count * block)), rng.standard_normal((count, block, c))


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (5, 3, 4, 2), (7, 4, 8, 1), (2, 5, 3, 6), (9, 2, 16, 3)])
def test_each_block_times_its_own_matrix(cupy: Any, sizes: Any) -> None:
    full, blocks = made(*sizes)
    _, count, b, _ = sizes
    for first, last in itertools.combinations(range(count + 1), 2):
        got = column_blocks(cupy, cupy.asarray(full), cupy.asarray(blocks), first, last)
        assert got is not None
        want = [full[:, j * b : (j + 1) * b] @ blocks[j] for j in range(first, last)]
        np.testing.assert_allclose(got.inner, want, rtol=0, atol=b * 2.0**-50)


def test_rows_of_a_larger_buffer(cupy: Any) -> None:
    full, blocks = made(6, 3, 4, 2)
    buffer = np.full((11, 20), np.nan)
    buffer[2:8, 5:17] = full
    got = column_blocks(cupy, cupy.asarray(buffer)[2:8, 5:17], cupy.asarray(blocks), 0, 3)
    assert got is not None
    assert np.array_equal(got.inner, column_blocks(cupy, cupy.asarray(full), cupy.asarray(blocks), 0, 3).inner)


@pytest.mark.parametrize(
    "change",
    [
        lambda full, blocks: (full.astype(np.float32), blocks),
        lambda full, blocks: (full, blocks.astype(np.float32)),
        lambda full, blocks: (np.asfortranarray(full), blocks),
        lambda full, blocks: (full[:, ::-1], blocks),
        lambda full, blocks: (full, blocks[:, :, ::-1]),
        lambda full, blocks: (full[:, :-1], blocks),
        lambda full, blocks: (full[:0], blocks),
    ],
    ids=["float32 weights", "float32 values", "by columns", "backwards", "values with gaps", "too narrow", "no rows"],
)
def test_what_it_cannot_read_is_left_to_matmul(cupy: Any, change: Any) -> None:
    full, blocks = change(*made(6, 3, 4, 2))
    assert column_blocks(cupy, cupy.asarray(full), cupy.asarray(blocks), 0, 3) is None


def test_without_the_binding(cupy: Any) -> None:
    full, blocks = made(6, 3, 4, 2)
    assert column_blocks(np, full, blocks, 0, 3) is None
    del cupy.cuda.cublas
    assert column_blocks(cupy, cupy.asarray(full), cupy.asarray(blocks), 0, 3) is None
    product = block_sums.block_product(cupy.asarray(full), cupy.asarray(blocks), 0, 3)
    np.testing.assert_allclose(product.inner, full @ blocks.reshape(12, 2), rtol=0, atol=1e-13)


def test_tier_1_takes_it(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    full, blocks = made(6, 5, 4, 2)
    asked = []
    true = cupy.cuda.cublas.dgemmStridedBatched
    monkeypatch.setattr(cupy.cuda.cublas, "dgemmStridedBatched", lambda *a: asked.append(a[-1]) or true(*a))
    product = block_sums.block_product(cupy.asarray(full), cupy.asarray(blocks), 1, 4)
    assert asked == [3]
    np.testing.assert_array_equal(product.inner, block_sums.block_product(full, blocks, 1, 4))


def test_the_canaries_judge_it_too(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in float32 beside a right matmul: nothing is certified."""
    monkeypatch.setattr(device_arithmetic, "exps", lambda: (exp64, None))
    monkeypatch.setattr(canaries, "_passed", set())
    device_arithmetic.ensure(cupy, 1.0)
    true = cupy.cuda.cublas.dgemmStridedBatched
    asked: list[int] = []

    def rough(*args: Any) -> None:
        asked.append(args[-1])
        true(*args)
        out = np.ctypeslib.as_array((ctypes.c_double * (args[16] * args[17])).from_address(args[14]))
        out[...] = out.astype(np.float32)

    monkeypatch.setattr(cupy.cuda.cublas, "dgemmStridedBatched", rough)
    monkeypatch.setattr(canaries, "_passed", set())
    with pytest.raises(CanaryFailed, match="integer product"):
        device_arithmetic.ensure(cupy, 1.0)
    assert set(asked) == {2}
