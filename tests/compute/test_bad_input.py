"""Arguments that don't fit are refused with what was expected, before anything is computed."""

import sys
import types
import warnings
from fractions import Fraction

import numpy as np
import pytest

import compute
from compute import Rope, Spec
from compute.errors import DeviceError, InputError

X = np.ones((2, 3, 4))
MASK = np.ones((3, 3), bool)


@pytest.mark.parametrize(
    ("args", "given", "says"),
    [
        ((np.ones((2, 3, 4)), np.ones((2, 3, 5)), X), {}, "d_k=5"),
        ((X, X, np.ones((2, 2, 4))), {}, "all axes but the last"),
        ((X, X[0], X[0]), {}, "axes"),
        ((np.ones((2, 2, 3, 4)), np.ones((3, 2, 3, 4)), np.ones((3, 2, 3, 4))), {}, "batch axes"),
        ((np.ones((3, 3, 4)), X, X), {}, "multiple"),
        ((X, np.ones((4, 3, 4)), np.ones((4, 3, 4))), {}, "multiple"),
        ((X, np.ones((0, 3, 4)), np.ones((0, 3, 4))), {}, "empty"),
        ((X[0, 0], X[0, 0], X[0, 0]), {}, "shape"),
        ((X.astype(int), X, X), {}, "dtype int64"),
        ((X.astype(complex), X, X), {}, "complex"),
        ((X.astype(np.float32), X, X), {}, "one dtype"),
        ((X.tolist(), X, X), {}, "builtins.list"),
        ((X[..., :0], X[..., :0], X), {}, "d_k is 0"),
        ((X, X, X), {"mask": MASK.astype(int)}, "1 = keep, 1 = drop"),
        ((X, X, X), {"mask": MASK.astype(np.uint8)}, "astype"),
        ((X, X, X), {"mask": MASK[:2]}, "mask has shape"),
        ((X, X, X), {"mask": np.ones((5, 2, 3, 3), bool)}, "mask has shape"),
        ((X, X, X), {"bias": MASK}, "belongs into mask"),
        ((X, X, X), {"bias": np.ones((3, 4))}, "bias has shape"),
        ((X, X, X), {"bias": np.full((3, 3), np.inf)}, "outside the domain"),
        ((X, X, X), {"sink": np.ones(3)}, "sink has shape"),
        ((X, X, X), {"sink": np.inf}, "sink"),
        ((X, X, X), {"sink": np.array([1, 2])}, "dtype"),
        ((X, X, X), {"alibi_slopes": np.array([np.nan, 1])}, "finite slopes"),
        ((X, X, X), {"alibi_slopes": np.ones((2, 3))}, "alibi_slopes has shape"),
        ((X, X, X), {"key_lengths": 4}, "m = 3"),
        ((X, X, X), {"key_lengths": -1}, "m = 3"),
        ((X, X, X), {"key_lengths": 2.0}, "integers"),
        ((X, X, X), {"key_lengths": True}, "integers"),
        ((X, X, X), {"key_lengths": np.array([1, 2])}, "batch axes"),
        ((X, X, X), {"dropout_mask": MASK}, "no dropout"),
        ((X, X, X), {"dropout_mask": MASK.astype(int)}, "dropout_mask has dtype"),
        ((X, X, X), {"algorithm": "fastest"}, "algorithm"),
        ((X, X, X, Spec(groups=2)), {}, "groups=1"),
        ((X, X, X, Spec(rope=Rope(dims=6))), {}, "rope turns 6"),
        ((X[..., :3], X[..., :3], X, Spec(rope=Rope())), {}, "even"),
        ((X, X, X, Spec(dropout=0.1)), {"dropout_mask": MASK.astype(float)}, "only one"),
        ((X, X, X, None), {}, "compute.Spec"),
        ((X, X, X), {"threads": 0, "algorithm": "online"}, "threads"),
        ((X, X, X), {"threads": 1.5, "algorithm": "online"}, "threads"),
    ],
)
def test_refused(args, given, says):
    with pytest.raises(InputError, match=says):
        compute.attention(*args, **given)


@pytest.mark.parametrize(
    "fields",
    [
        {"scale": float("nan")},
        {"scale": float("inf")},
        {"scale": "1"},
        {"scale": True},
        {"window": (-1, 0)},
        {"window": (1.5, 0)},
        {"window": (True, 0)},
        {"window": (1, 2, 3)},
        {"causal": "upper"},
        {"softcap": 0.0},
        {"softcap": float("nan")},
        {"groups": 0},
        {"empty_row": "skip"},
        {"lse_base": 1.0},
        {"past": -1},
        {"past": 1.5},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"alibi": "abs"},
    ],
)
def test_a_spec_checks_itself(fields):
    with pytest.raises(InputError, match=next(iter(fields))):
        Spec(**fields)


def test_a_rope_checks_itself():
    for fields in ({"layout": "pairs"}, {"base": 0.0}, {"base": float("nan")}, {"dims": 3}, {"dims": 0}):
        with pytest.raises(InputError, match="rope"):
            Rope(**fields)


def test_a_matrix_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.asmatrix(np.ones((3, 4)))
    with pytest.raises(InputError, match="matrix"):
        compute.attention(matrix, X[0], X[0])


def test_an_exact_scale_is_itself():
    assert Spec(scale=Fraction(1, 3)).scale_value(7) == 1 / 3
    a = compute.attention(X, X, X, Spec(scale=Fraction(1, 4)))
    assert (a == compute.attention(X, X, X, Spec(scale=0.25))).all()


@pytest.mark.parametrize("name", ["grad_output", "grad_lse", "output", "lse"])
def test_companions_of_the_backward_pass_are_checked(name):
    good = {"grad_output": X, "grad_lse": X[..., 0], "output": X, "lse": X[..., 0]}
    bad = {**good, name: good[name][:1]}
    grad = bad.pop("grad_output")
    with pytest.raises(InputError, match=name):
        compute.attention_backward(grad, X, X, X, **bad)
    with pytest.raises(InputError, match="dtype"):
        compute.attention_backward(X.astype(int), X, X, X)


def test_layouts_and_cache_refuse():
    t = np.ones((4, 2, 4))
    starts = np.array([0, 2, 4])
    for bad in (
        np.array([0, 3, 2, 4]),
        np.array([1, 4]),
        np.array([0, 5]),
        np.array([0.0, 4]),
        np.array([], int),
        [0, 4],
    ):
        with pytest.raises(InputError):
            compute.packed_attention(t, t, t, bad, starts)
    with pytest.raises(InputError, match="same number"):
        compute.packed_attention(t, t, t, np.array([0, 4]), starts)
    pages = np.ones((3, 2, 1, 4))
    q = np.ones((1, 1, 1, 4))
    paged = lambda table, length: compute.paged_attention(q, pages, pages, np.array(table), np.array(length))  # noqa: E731
    assert paged([[2, 9]], [2]).shape == (1, 1, 1, 4)  # entry 9 is past the keys and never read
    for table, length in [
        ([[2, 9]], [3]),
        ([[-1, 0]], [1]),
        ([[0, 1]], [5]),
        ([[0, 1]], [-1]),
        ([[0], [1]], [1]),
        ([[0.0]], [1]),
    ]:
        with pytest.raises(InputError):
            paged(table, length)
    with pytest.raises(InputError, match="causal"):
        compute.Cache(Spec(), 4)
    cache = compute.Cache(Spec(causal=True), 4)
    cache.extend(X, X, X)
    for new in (X, X[..., :2], X[:1], X[..., :1, :].astype(np.float32)):
        before = cache.length
        with pytest.raises(InputError):
            cache.extend(new, new, new)
        assert cache.length == before
    x = np.ones((3, 4))
    with pytest.raises(InputError, match="wk"):
        compute.self_attention(x, np.ones((4, 4)), np.ones((3, 4)), np.ones((4, 4)), heads=2)
    with pytest.raises(InputError, match="wo"):
        compute.self_attention(x, *[np.ones((4, 4))] * 3, np.ones((3, 4)), heads=2)


# -- another array library ------------------------------------------------------------------------------------------


@pytest.fixture
def fake_cupy(monkeypatch):
    """A module `cupy` whose arrays are NumPy's in another class: enough to see which library a call runs on."""

    class ndarray:
        __module__ = "cupy"
        device = types.SimpleNamespace(id=0)

        def __init__(self, array):
            self.array = array

        def __getattr__(self, name):
            return getattr(self.array, name)

    module = types.ModuleType("cupy")
    module.ndarray = ndarray
    module.cuda = types.SimpleNamespace(Device=lambda: types.SimpleNamespace(id=0))
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_libraries_are_told_apart_and_not_mixed(fake_cupy):
    from compute.arrays import library, namespace

    x = fake_cupy.ndarray(X)
    assert library(x) == "cupy"
    assert namespace(q=x, k=x) is fake_cupy
    assert namespace(q=X, mask=None) is np
    with pytest.raises(InputError, match=r"cupy.asarray"):
        compute.attention(x, X, X)
    with pytest.raises(InputError, match=r"two libraries|cupy"):
        compute.attention(X, X, X, mask=fake_cupy.ndarray(MASK))


def test_without_cupy_loaded_nothing_is_taken_for_it():
    from compute.arrays import library

    class Foreign:
        __module__ = "cupy"

    assert "cupy" not in sys.modules
    assert library(Foreign()) is None
    assert library([1.0]) is None


def test_device_errors_become_one_clear_error(fake_cupy):
    from compute.arrays import device_errors

    class OutOfMemoryError(Exception):
        pass

    class CUDARuntimeError(Exception):
        pass

    for error, says in [(OutOfMemoryError("8 GB"), "algorithm='online'"), (CUDARuntimeError("no driver"), "driver")]:
        with pytest.raises(DeviceError, match=says), device_errors(fake_cupy):
            raise error
    with pytest.raises(KeyError), device_errors(fake_cupy):
        raise KeyError("untouched")
    with pytest.raises(OutOfMemoryError), device_errors(np):
        raise OutOfMemoryError
