"""The power of the statistics: small defects of a flash kernel, by dtype and size of the scores, and none of them."""

import numpy as np
import pytest

import verify
from tests.verify.small_defects import Kernel, coarse_exp, kernel
from verify.checking.allowance import parse_algorithm
from verify.checking.calls import Call, Reply, dtype_of
from verify.checking.statistics import FALSE_ALARM, Draw, draws, forward_sample, judged, threshold_probability

SIXTEEN = ("float16", "bfloat16")
DEFECTS = (
    "scale off by 0.1 %", "stale key", "stale value", "last key dropped", "block 3 not rescaled", "weights truncated",
    "16-bit accumulator", "normaliser off by 5e-4",
)  # fmt: skip
# defect, dtype, its kernel's options, the algorithm that is declared
WIDE = (
    ("normaliser off by 1e-5", "float32", {}, None),
    ("coarse exp", "float32", {}, None),
    ("a block in bfloat16", "float32", {}, None),
    ("16-bit accumulator", "float32", {}, None),
    ("scale off by 0.1 %", "float32", {}, None),
    ("stale value", "float32", {}, None),
    ("weights truncated", "float32", {"weights": "tf32"}, None),
    ("weights truncated", "float32", {"weights": "tf32"}, "flash:block=128,weights=tf32"),
    ("parts truncated", "float32", {"products": "bf16x3"}, None),
    ("parts truncated", "float32", {"products": "bf16x3"}, "flash:block=128,products=bf16x3"),
    ("normaliser off by 1e-5", "float32", {"products": "bf16x3"}, "flash:block=128,products=bf16x3"),
    ("normaliser off by 1e-13", "float64", {}, None),
    ("coarse exp", "float64", {}, None),
)
RIGHT = (
    ("none", "float32", {"block": 64}, None),
    ("none", "float32", {"block": 96}, None),
    ("none", "float32", {"block": 2048}, None),
    ("sums in order", "float32", {"block": 2048}, None),
    ("none", "float32", {"weights": "tf32"}, "flash:block=128,weights=tf32"),
    ("none", "float32", {"products": "tf32"}, "flash:block=128,products=tf32"),
    ("none", "float32", {"products": "bf16x3"}, "flash:block=128,products=bf16x3"),
    ("none", "float64", {"block": 64}, None),
    ("sums in order", "float64", {"block": 2048}, None),
)


def failing(run: Kernel, dtype: str, algorithm: str | None, one: Draw, seed: int) -> set[str]:
    """The tests that fail on one draw, at the threshold that a full run has."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((1, 1, one.n, one.d)) for _ in range(3))
    call = Call(*((x * s).astype(dtype_of(dtype)) for x, s in ((q, one.size), (k, 1), (v, 1))))
    judge = parse_algorithm(algorithm, dtype)
    (sample,) = forward_sample(call, Reply(output=run(call.q, call.k, call.v)), judge)
    level = threshold_probability(list(draws(dtype, False, False)))
    return {f.name for f in judged(sample, level) if f.value > f.threshold}


def alarms(run: Kernel, dtype: str, algorithm: str | None = None) -> set[tuple[str, float]]:
    """The tests that fail on both of two draws."""
    return {
        (name, one.size)
        for one in draws(dtype, False, False)
        for name in failing(run, dtype, algorithm, one, 11) & failing(run, dtype, algorithm, one, 12)
    }


@pytest.mark.parametrize(("dtype", "size"), [(dtype, size) for dtype in SIXTEEN for size in (1.0, 3.0)])
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_small_defect_is_suspicious(defect: str, dtype: str, size: float) -> None:
    run, declared = kernel(defect, weights=dtype), f"flash:block=128,weights={dtype}"
    one = Draw(1024, 64, size)
    assert failing(run, dtype, declared, one, 11) & failing(run, dtype, declared, one, 12)


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("block", [64, 96, 128])
def test_a_correct_kernel_is_not(block: int, dtype: str) -> None:
    assert alarms(kernel(block=block, weights=dtype), dtype, f"flash:block=128,weights={dtype}") == set()


@pytest.mark.parametrize(("defect", "dtype", "options", "declared"), WIDE)
def test_a_small_defect_in_a_wide_format(
    defect: str, dtype: str, options: dict[str, str], declared: str | None
) -> None:
    assert alarms(kernel(defect, **options), dtype, declared)  # type: ignore[arg-type]


@pytest.mark.parametrize(("defect", "dtype", "options", "declared"), RIGHT)
def test_a_correct_kernel_in_a_wide_format(
    defect: str, dtype: str, options: dict[str, str], declared: str | None
) -> None:
    assert alarms(kernel(defect, **options), dtype, declared) == set()  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"products": "bf16x3"}, {"weights": "tf32"}])
def test_the_bias_tells_truncation_from_rounding(options: dict[str, str]) -> None:
    """The same kernel with its parts rounded and truncated: only the second leans."""
    declared = "flash:block=128" + "".join(f",{name}={value}" for name, value in options.items())
    defect = {"products": "parts truncated", "weights": "weights truncated"}.get(next(iter(options), ""))
    defect = defect or "normaliser off by 1e-5"
    one = Draw(1024, 64, 1.0)
    assert "bias" in failing(kernel(defect, **options), "float32", declared, one, 5)  # type: ignore[arg-type]
    assert "bias" not in failing(kernel(**options), "float32", declared, one, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("defect", "kind"), [("normaliser off by 1e-5", "bias of error"), ("coarse exp", "RMS of error")]
)
def test_a_whole_check_finds_what_the_worst_case_lets_through(defect: str, kind: str) -> None:
    """In a quick run, in float32: every designed input agrees, and the statistics do not."""
    result = verify.check(kernel(defect), dtype="float32", quick=True)
    assert result.status == "suspicious", result.text()
    assert kind in result.kinds
    assert all(f.probability == FALSE_ALARM and "second, independent draw" in f.message for f in result.findings)
    right = verify.check(kernel(), dtype="float32", quick=True)
    assert right.ok, right.text()


def test_a_whole_check_tells_truncation_from_rounding() -> None:
    """Parts of bfloat16: only the bias sees that they are cut. tf32: the worst case of rounding does not cover it."""
    for defect, options, status in (
        ("parts truncated", {"products": "bf16x3"}, "suspicious"),
        ("weights truncated", {"weights": "tf32"}, "differs"),
    ):
        declared = "flash:block=128" + "".join(f",{name}={value}" for name, value in options.items())
        run, right = kernel(defect, **options), kernel(**options)  # type: ignore[arg-type]
        wrong = verify.check(run, dtype="float32", algorithm=declared, quick=True)
        assert wrong.status == status, wrong.text()
        assert status == "differs" or "bias of error" in wrong.kinds
        agreed = verify.check(right, dtype="float32", algorithm=declared, quick=True)
        assert agreed.ok, agreed.text()


def test_a_coarse_exp_is_proved_wrong_by_two_keys() -> None:
    """Where it works on every key, a relative error of 2.5e-6 is beyond the worst case of one designed input."""
    result = verify.check(kernel("coarse exp in every block"), dtype="float32", quick=True)
    found = next(f for f in result.findings if f.kind == "approximate exp")
    assert found.verdict == "proved wrong"


def test_a_run_divides_its_false_alarms_among_its_tests() -> None:
    """Each of T tests needs two failures of probability a: T·a² is the stated rate, over all dtypes of a run."""
    assert sum(one.tests for one in draws("float32", False, True)) == 2 * 4 + 12
    full = list(draws("bfloat16", False, True))
    assert sum(one.tests for one in full) == 2 * 4 + 2 * 12
    assert 32 * threshold_probability(full) ** 2 == pytest.approx(FALSE_ALARM)
    assert 4 * 32 * threshold_probability(full, dtypes=4) ** 2 == pytest.approx(FALSE_ALARM)


def test_thresholds_hold_over_many_draws() -> None:
    """A sample of `python benchmarks/checking.py --alarms`: the share beyond each threshold, set at 5 % here.

    The binomial chance of this many, were the true share 5 %, is below 1e-6 for every count refused.
    """
    one, times, level = Draw(64, 16, 2.0), 600, 0.05
    for dtype, algorithm in (("float32", None), ("bfloat16", "flash:block=128,weights=bfloat16")):
        run = kernel(weights="bfloat16" if algorithm else None)
        count = dict.fromkeys(("RMS", "bias", "row RMS", "maximum"), 0)
        for seed in range(times):
            rng = np.random.default_rng([seed, 9])
            q, k, v = (rng.standard_normal((1, 1, one.n, one.d)) for _ in range(3))
            call = Call(*((x * s).astype(dtype_of(dtype)) for x, s in ((q, one.size), (k, 1), (v, 1))))
            (sample,) = forward_sample(
                call, Reply(output=run(call.q, call.k, call.v)), parse_algorithm(algorithm, dtype)
            )
            for figure in judged(sample, level):
                count[figure.name] += figure.value > figure.threshold
        assert max(count.values()) <= 58, (dtype, count)


def test_the_coarse_exp_is_as_coarse_as_it_says() -> None:
    x = -np.linspace(0, 20, 4001, dtype=np.float32)
    off = np.abs(coarse_exp(x, 6) / np.exp(x.astype(np.float64)) - 1).max()
    assert 1e-7 < off < 1e-5
