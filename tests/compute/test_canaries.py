"""Each canary fails under the fault it is for, and all pass here."""

from __future__ import annotations

import numpy as np
import pytest

from compute import canaries
from compute.canaries import Arithmetic, failures
from compute.errors import CanaryFailed


def names(arithmetic: Arithmetic) -> set[str]:
    return {line.split(":")[0] for line in failures(arithmetic)}


def in_float32(a, b):
    return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.float64)


def tf32(x):
    m, e = np.frexp(x)
    return np.ldexp(np.rint(m * 2.0**11), e - 11)


def fixed_point(slices: int, bits: int = 7):
    """Rows and columns cut into slices on one common exponent each, as integer matrix units emulate float64."""

    def cut(x, axis):
        top = np.abs(x).max(axis=axis, keepdims=True)
        e = np.frexp(np.where(top > 0, top, 1))[1]
        rest, parts = np.ldexp(x, -e), []
        for i in range(1, slices + 1):
            part = np.rint(np.ldexp(rest, bits * i)) * 2.0 ** (-bits * i)
            parts.append(part)
            rest = rest - part
        return parts, e

    def product(a, b):
        (pa, ea), (pb, eb) = cut(a, 1), cut(b, 0)
        total = sum(np.matmul(x, y) for i, x in enumerate(pa) for j, y in enumerate(pb) if i + j < slices)
        return np.ldexp(total, ea + eb)

    return product


def aligned(left: int | None, right: int | None, bits: int):
    """Factors cut at `bits` below the largest entry that shares their exponent; axis None shares one in a matrix."""

    def cut(x, axis):
        top = np.abs(x).max(axis=axis, keepdims=True)
        e = np.frexp(np.where(top > 0, top, 1))[1]
        return np.ldexp(np.rint(np.ldexp(x, bits - e)), e - bits)

    return lambda a, b: np.matmul(cut(a, left), cut(b, right))


def flushing_half(a, b):
    out = np.matmul(a, b)
    half = out[len(out) // 2 :]
    half[np.abs(half) < 2.0**-1022] = 0
    return out


def test_all_pass_here() -> None:
    assert failures() == []


@pytest.mark.parametrize(
    ("fault", "canary"),
    [
        (Arithmetic(matmul=in_float32), "integer product"),
        (Arithmetic(matmul=lambda a, b: np.matmul(tf32(a), tf32(b))), "integer product"),
        (Arithmetic(matmul=fixed_point(6)), "wide-range product"),
        (Arithmetic(matmul=fixed_point(9)), "wide-range product"),
        (Arithmetic(matmul=flushing_half), "subnormal product"),
        (Arithmetic(add=lambda a, b: np.nextafter(a + b, 0)), "rounding"),
        (Arithmetic(exp=lambda x: np.exp(x) * (1 - 2.0**-53)), "exp(0)"),
        (Arithmetic(exp=lambda x: np.where(x == 0, 1, np.exp(x) * (1 + 3 * 2.0**-52))), "exp"),
        (Arithmetic(exp=lambda x: np.exp(np.maximum(x, -745.0))), "exp"),
    ],
)
def test_each_fails_under_its_fault(fault: Arithmetic, canary: str) -> None:
    assert canary in names(fault)


def test_emulation_passes_the_integers_alone() -> None:
    # why the wide-range canary is needed
    assert "integer product" not in names(Arithmetic(matmul=fixed_point(9)))


@pytest.mark.parametrize(
    ("left", "right"), [(None, None), (None, 0), (1, None), (0, 0), (1, 1)],
    ids=["one a matrix", "one for all of a", "one for all of b", "one a channel of a", "one a channel of b"],
)  # fmt: skip
def test_shared_exponents_that_only_the_scaled_product_sees(left: int | None, right: int | None) -> None:
    """Exponents shared by rows of different size, with bits enough for every other canary (2^±60 in a row)."""
    assert names(Arithmetic(matmul=aligned(left, right, 260))) == {"scaled product"}


def test_exponents_of_rows_and_columns_are_the_wide_products_to_see() -> None:
    # a row that differs from others by a power of two is exact under an exponent of its own
    for bits in (64, 100, 150):
        assert names(Arithmetic(matmul=aligned(1, 0, bits))) == {"wide-range product"}


def test_a_failed_canary_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries, "_passed", set())
    monkeypatch.setattr(canaries, "failures", lambda _: ["exp: off"])
    with pytest.raises(CanaryFailed, match="nothing is certified"):
        canaries.ensure()
    assert not canaries._passed


def test_they_run_again_when_the_threads_change(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    monkeypatch.setattr(canaries, "_passed", set())
    monkeypatch.setattr(canaries, "failures", lambda _: runs.append(1) or [])
    canaries.ensure()
    canaries.ensure()
    assert len(runs) == 1
    monkeypatch.setattr(canaries, "blas_threads", lambda: 97)
    canaries.ensure()
    assert len(runs) == 2
