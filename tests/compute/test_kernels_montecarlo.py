"""The Monte Carlo kernels in the emulator: the bits of `compute.streams`, and statistics that survive saturation."""

from __future__ import annotations

import hashlib
from typing import Any

import mpmath
import numpy as np
import pytest

from compute.errors import InputError, NotInstalled
from compute.kernels import montecarlo
from compute.kernels.emulator import compiler
from compute.kernels.loader import Emulator
from compute.streams import Stream

try:
    compiler()
except NotInstalled as error:  # pragma: no cover
    pytest.skip(str(error), allow_module_level=True)

KEY = [int(w) for w in np.frombuffer(hashlib.blake2b(b"7\x1fkernel", digest_size=16).digest(), "<u8")]
BACKEND = Emulator()


def test_words_and_uniforms_are_the_streams_bits() -> None:
    for replicate in (0, 3, 2**64 - 1):
        stream = Stream(7, "kernel", replicate)
        np.testing.assert_array_equal(montecarlo.words(BACKEND, KEY, replicate, 4096), stream.words(4096))
        stream = Stream(7, "kernel", replicate)
        np.testing.assert_array_equal(montecarlo.uniforms(BACKEND, KEY, replicate, 4096), stream.uniforms((4096,)))


@pytest.mark.parametrize("count", [8, 16384, 16384 + 4096 + 8, 3 * 16384])
def test_normals_agree_with_the_stream(count: int) -> None:
    want = Stream(7, "kernel", 5).normals((count,))
    got = montecarlo.normals(BACKEND, KEY, 5, count)
    radius = _radii(5, count)
    assert (np.abs(got - want) <= 16 * 2.0**-53 * radius).all()
    single = montecarlo.normals(BACKEND, KEY, 5, count, "float32")
    # The angle, rounded to float, moves by at most 2 pi 2^-24; the radius by a few units of its last place.
    assert (np.abs(single - want) <= 2.0**-21 * radius).all()


def _radii(replicate: int, count: int) -> Any:
    """sqrt(-2 ln u) of every normal's pair, in the order of the normals."""
    unit, out = Stream(7, "kernel", replicate).uniforms((count,)), np.empty(count)
    for start in range(0, count, 16384):
        half = min(16384, count - start) // 2
        out[start : start + half] = out[start + half : start + 2 * half] = np.sqrt(
            -2 * np.log(unit[start : start + half])
        )
    return out


def _exact(scores: Any) -> list[Any]:
    with mpmath.workdps(60):
        e = [mpmath.exp(mpmath.mpf(float(x)) - mpmath.mpf(float(scores.max()))) for x in scores]
        z = mpmath.fsum(e)
        a = [x / z for x in e]
        p2, p3 = mpmath.fsum(x**2 for x in a), mpmath.fsum(x**3 for x in a)
        entropy = -mpmath.fsum(x * mpmath.log(x) for x in a)
        mean = mpmath.fsum(mpmath.mpf(float(x)) for x in scores) / len(scores)
        square = mpmath.fsum(mpmath.mpf(float(x)) ** 2 for x in scores) / len(scores)
        return [1 - max(a), p2, p2 - 2 * p3 + p2**2, entropy, mpmath.log(z) + float(scores.max()), mean, square]


@pytest.mark.parametrize("sigma", [0.0, 0.5, 8.0, 60.0, 200.0])
def test_statistics_of_a_row_to_rounding(sigma: float) -> None:
    """At sigma = 200 one weight is 1 to dozens of digits; 1 - max and the Jacobian's norm keep their digits."""
    n, replicates = 264, 3
    got = montecarlo.softmax_statistics(BACKEND, KEY, n, sigma, replicates, first=11, fmt="float64")
    assert got.shape == (replicates, len(montecarlo.STATISTICS))
    for r in range(replicates):
        scores = sigma * montecarlo.normals(BACKEND, KEY, 11 + r, n)
        for name, value, want in zip(montecarlo.STATISTICS, got[r], _exact(scores), strict=True):
            # The gap of two scores carries an absolute error u·|score|, which is a relative error of its exponential.
            allowed = n * 2.0**-53 * (1 + 4 * float(np.abs(scores).max()))
            if name in ("score_mean", "log_sum_exp"):
                assert abs(value - float(want)) <= allowed * max(1.0, float(np.abs(scores).max())), name
            else:
                assert abs(value - float(want)) <= allowed * abs(float(want)) + 1e-300, name


def test_a_row_does_not_depend_on_how_many_are_drawn() -> None:
    whole = montecarlo.softmax_statistics(BACKEND, KEY, 64, 2.0, 6)
    part = montecarlo.softmax_statistics(BACKEND, KEY, 64, 2.0, 2, first=4)
    np.testing.assert_array_equal(whole[4:], part)


@pytest.mark.parametrize(
    "edit",
    [
        {"top = x;\n    } else": "} else"},
        {"e2 = (e2 * f + f) * f;": "e2 = e2 * f + f;"},
        {"if (other.top > top) {": "if (false) {"},
        {"for (int w = 1; w < BLOCK / 32; ++w) row.merge": "for (int w = 2; w < BLOCK / 32; ++w) row.merge"},
        {"mask = 16; mask; mask >>= 1) row.merge": "mask = 8; mask; mask >>= 1) row.merge"},
        {"te = (te - by * e1) * f - by * f;": "te = te * f - by * f;"},
        {"row.add(sigma * f.sine[j]);": "row.add(sigma * f.cosine[j]);"},
        {"angle = philox(out.second / 4 + 1,": "angle = philox(out.second / 4,"},
    ],
    ids=lambda e: next(iter(e))[:30],
)
def test_planted_faults_are_caught(edit: dict[str, str]) -> None:
    broken = Emulator()
    broken.edit = edit
    right = montecarlo.softmax_statistics(BACKEND, KEY, 1024, 3.0, 2, fmt="float64")
    wrong = montecarlo.softmax_statistics(broken, KEY, 1024, 3.0, 2, fmt="float64")
    assert not np.allclose(right, wrong, rtol=1e-9)


def test_moments_of_scores() -> None:
    for fmt in ("float64", "float32"):
        scores = Stream(1, "scores", 0).normals((333, 77)).astype(fmt)
        got = montecarlo.score_moments(BACKEND, scores, blocks=7)
        x = scores.astype(np.float64)
        for power in range(1, 5):
            allowed = scores.size * 2.0**-53 * float((np.abs(x) ** power).sum())
            assert abs(got[power - 1] - (x**power).sum()) <= allowed


def test_bad_input() -> None:
    with pytest.raises(InputError, match="multiple of 8"):
        montecarlo.normals(BACKEND, KEY, 0, 12)
    with pytest.raises(InputError, match="multiple of 8"):
        montecarlo.softmax_statistics(BACKEND, KEY, 9, 1.0, 1)
    with pytest.raises(InputError, match="at least 1"):
        montecarlo.softmax_statistics(BACKEND, KEY, 8, 1.0, 0)
