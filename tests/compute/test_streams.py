"""Streams: reproducible, disjoint, and of the law they claim."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from compute.errors import InputError
from compute.streams import Stream


def test_stream_is_a_function_of_its_key_alone() -> None:
    a = Stream(1, "x", 5).normals((100,))
    Stream(1, "x", 4).normals((1000,))
    assert (Stream(1, "x", 5).normals((100,)) == a).all()


@pytest.mark.parametrize("other", [(2, "x", 5), (1, "y", 5), (1, "x", 6)])
def test_every_part_of_the_key_matters(other: tuple[int, str, int]) -> None:
    a, b = Stream(1, "x", 5).words(64), Stream(*other).words(64)
    assert not np.intersect1d(a, b).size


def test_key_parts_do_not_run_together() -> None:
    # seed 1 with experiment "2x" against seed 12 with experiment "x": a plain concatenation would collide.
    assert (Stream(1, "2x").words(8) != Stream(12, "x").words(8)).any()


def test_words_are_those_of_numpys_philox() -> None:
    import hashlib

    key = np.frombuffer(hashlib.blake2b(b"3\x1fe", digest_size=16).digest(), dtype="<u8")
    counter = np.array([0, 0, 0, 9], dtype=np.uint64)
    expected = np.random.Philox(key=key, counter=counter).random_raw(33)
    assert (Stream(3, "e", 9).words(33) == expected).all()


def test_extreme_words_stay_inside_the_open_interval() -> None:
    from compute.streams import _box_muller, _open_unit

    extreme = np.array([0, 2**64 - 1, 2**63, 2**12 - 1], dtype=np.uint64)
    unit = _open_unit(extreme)
    assert unit.min() == 2.0**-53
    assert unit.max() == 1 - 2.0**-53
    assert np.isfinite(_box_muller(extreme)).all()


def test_laws_of_the_draws() -> None:
    # p-values of fixed draws: a wrong law of any size would show at 200 000 draws.
    stream = Stream(0, "laws")
    assert stats.kstest(stream.uniforms((200_000,)), "uniform").pvalue > 1e-3
    z = stream.normals((200_001,))
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 4 / np.sqrt(z.size)
    # The two halves of Box and Muller come from the same radius: squares must be uncorrelated too.
    half = 8192
    assert abs(np.corrcoef(z[:half] ** 2, z[half : 2 * half] ** 2)[0, 1]) < 4 / np.sqrt(half)
    signs = stream.signs((200_000,))
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(signs.mean()) < 4 / np.sqrt(signs.size)
    faces = np.bincount(stream.integers(6, (60_000,)), minlength=6)
    assert stats.chisquare(faces).pvalue > 1e-3


@given(st.integers(0, 40_000), st.integers(1, 3))
def test_shapes(count: int, columns: int) -> None:
    assert Stream(0, "s").normals((count, columns)).shape == (count, columns)
    assert Stream(0, "s").signs((count,)).shape == (count,)


@pytest.mark.parametrize("replicate", [-1, 1 << 64])
def test_replicate_out_of_range_is_refused(replicate: int) -> None:
    with pytest.raises(InputError, match="replicate"):
        Stream(0, "x", replicate)


def test_bound_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="bound"):
        Stream(0, "x").integers(0, (1,))
