"""What the error bounds of tests/compute/reference.py assume of NumPy's exp, exp2 and tanh: at most 4 ulp."""

import mpmath
import numpy as np
import pytest

from tests.compute.reference import ULPS_EXP

RANGES = {"exp": (-87.0, 88.0), "exp2": (-125.0, 127.0), "tanh": (-9.0, 9.0)}


def in_ulp(got, want):
    return abs((got.astype(want.dtype) - want) / np.spacing(abs(got)).astype(want.dtype)).max()


@pytest.mark.parametrize("name", RANGES)
def test_float32(name):
    x = np.random.default_rng(0).uniform(*RANGES[name], 400_000).astype(np.float32)
    x = np.concatenate([x, x * np.float32(1e-3)])
    assert in_ulp(getattr(np, name)(x), getattr(np, name)(x.astype(np.float64))) <= ULPS_EXP


@pytest.mark.parametrize("name", RANGES)
def test_float64(name):
    x = np.random.default_rng(0).uniform(*RANGES[name], 3000)
    got = getattr(np, name)(x)
    exact = (lambda t: mpmath.power(2, t)) if name == "exp2" else getattr(mpmath, name)
    with mpmath.workprec(120):
        errors = [abs(mpmath.mpf(float(y)) - exact(mpmath.mpf(float(t)))) for t, y in zip(x, got, strict=True)]
    assert max(e / float(np.spacing(abs(y))) for e, y in zip(errors, got, strict=True)) <= ULPS_EXP
