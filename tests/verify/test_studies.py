"""Studies: right laws agree, wrong ones are refused, and the statistics are what they claim."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import verify
from compute.errors import InputError
from compute.sampling import Estimate
from compute.streams import Stream
from tests.verify import tiny_models as tiny
from verify.errors import MissingError, UsageError
from verify.models.blocks import Heads
from verify.studies import laws
from verify.studies import variance as variance_module
from verify.studies import weights as weights_module
from verify.studies.path import study_path
from verify.studies.saturation import study_saturation
from verify.studies.statistics import Measured, cluster_bootstrap, fitted_slope, global_p, holm, log_slope
from verify.studies.variance import study_variance
from verify.studies.weights import MEASURES, rounding_bound, study_weights

SIZES = (4, 16, 64)


# -- the variance study -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"components": "rademacher"},
        {"components": "exponential", "q_mean": 0.5, "k_mean": -0.25},
        {"components": "uniform", "q_sd": 2.0, "k_sd": 0.5},
    ],
)
def test_the_law_agrees_for_any_components(options: dict[str, Any]) -> None:
    found = study_variance(SIZES, precision=0.003, **options)
    assert found.outcome == "agrees", found.tests
    assert found.exit_code == 0
    assert len(found.points) == 2 * len(SIZES)
    assert all(abs(p.score) < 4 for p in found.points)


WRONG = {
    "mean of q forgotten": lambda v: (
        v["d_k"] * (v["sigma_q"] ** 2 * v["sigma_k"] ** 2 + v["mu_k"] ** 2 * v["sigma_q"] ** 2)
    ),
    "d_k − 1 for d_k": lambda v: (v["d_k"] - 1) * right(v) / v["d_k"],
    "d_k for its root": lambda v: v["d_k"] ** 2 * right(v) / v["d_k"],
    "two per cent": lambda v: 1.02 * right(v),
    "standard deviation for variance": lambda v: math.sqrt(right(v)),
}


def right(v: Any) -> float:
    a, b = v["sigma_q"] ** 2, v["sigma_k"] ** 2
    return float(v["d_k"] * (a * b + v["mu_q"] ** 2 * b + v["mu_k"] ** 2 * a))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_law_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variance_module, "law", lambda claim_id: WRONG[name])
    found = study_variance(SIZES, q_mean=0.5, k_mean=0.25, precision=0.003)
    assert found.outcome == "differs"
    assert found.exit_code == 1


def test_a_measurement_too_coarse_decides_nothing() -> None:
    found = study_variance((4, 8), precision=0.05, block=16)
    assert found.outcome == "undecided"
    assert found.exit_code == 1


def test_the_law_is_the_claims_own() -> None:
    values = {"d_k": 24, "sigma_q": 1.5, "sigma_k": 0.5, "mu_q": 0.25, "mu_k": -2.0}
    assert laws.law("variance.scores")(values) == right(values)
    with pytest.raises(UsageError, match="mu_k"):
        laws.law("variance.scores")({k: v for k, v in values.items() if k != "mu_k"})


def test_same_seed_same_numbers_other_seed_others() -> None:
    a, b, c = (study_variance((4, 8), precision=0.02, seed=s).to_json() for s in (3, 3, 4))
    assert a == b
    assert a["points"] != c["points"]
    assert "--seed 4" in c["command"]


def test_scores_of_a_true_law_have_the_t_distribution() -> None:
    # 120 small studies' points: the z of a right law must be t with 23 degrees of freedom.
    scores = [p.score for s in range(60) for p in study_variance((8,), precision=0.5, block=24, seed=s).points]
    assert stats.kstest(scores, stats.t(23).cdf).pvalue > 1e-3


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InputError):
        study_variance((0,))
    with pytest.raises(InputError):
        study_variance((4,), components="cauchy")
    with pytest.raises(UsageError, match="did you mean variance"):
        verify.study("varience")


# -- the saturation study ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 16])
def test_saturation_agrees_with_the_exact_means(n: int) -> None:
    found = study_saturation((4, 64), n=n, rows=20_000)
    assert found.outcome == "agrees", found.tests
    assert len(found.points) == 3 * 2 * 3


def wrong_expectations() -> dict[str, Any]:
    from derive import oracle

    exact = oracle.expect
    return {
        "the scale forgotten": lambda name, n, d_k, scale: exact(name, n, d_k=d_k, scale=1.0),
        "p2 for the Jacobian": lambda name, n, d_k, scale: exact(
            "p2" if name == "jacobian" else name, n, d_k=d_k, scale=scale
        ),
        "scores of one fixed variance": lambda name, n, d_k, scale: exact(
            name, n, sigma=np.asarray(scale) * np.sqrt(np.asarray(d_k, dtype=float))
        ),
        "one key more": lambda name, n, d_k, scale: exact(name, n + 1, d_k=d_k, scale=scale),
    }


@pytest.mark.parametrize(
    "name", ["the scale forgotten", "p2 for the Jacobian", "scores of one fixed variance", "one key more"]
)
def test_wrong_exact_means_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from derive import oracle

    monkeypatch.setattr(oracle, "expect", wrong_expectations()[name])
    assert study_saturation((4, 64), n=16, rows=20_000).outcome == "differs"


def test_the_median_dies_out_and_the_mean_does_not() -> None:
    rows = {(r[0], r[1]): r for r in study_saturation((16, 1024), n=64, rows=4000).tables[1].rows}
    root_mean_square, median = rows["1", 1024][2], rows["1", 1024][3]
    assert isinstance(root_mean_square, float)
    assert isinstance(median, float)
    assert median < 1e-3
    assert root_mean_square > 0.1


def test_saturation_refuses_what_has_no_meaning() -> None:
    for bad in ({"n": 1}, {"rows": 10}, {"d_k": (0, 4)}, {"d_k": ()}):
        with pytest.raises(InputError):
            study_saturation(**bad)


# -- the path study --------------------------------------------------------------------------------------------------


def test_paths_agree_with_their_exact_means() -> None:
    found = study_path((1, 8), rows=20_000, products=150)
    assert found.outcome == "agrees", found.tests
    assert len(found.points) == 8


@pytest.mark.parametrize("place", range(4))
def test_wrong_path_laws_are_refused(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from verify.studies import path

    exact = path._laws

    def wrong(*given: Any) -> Any:
        found = list(exact(*given))
        # A path over one position more or less, for each quantity in turn.
        found[place] = exact(given[0] + 1, *given[1:])[place]
        return tuple(found)

    monkeypatch.setattr(path, "_laws", wrong)
    assert study_path((1, 8), rows=20_000, products=150).outcome == "differs"


def test_attention_outlives_products() -> None:
    table = study_path((256,), rows=2000, products=20).tables[1].rows[0]
    assert float(table[1]) > 100 * float(table[2]) > 0  # type: ignore[arg-type]
    assert float(table[1]) > 100 * float(table[3]) > 0  # type: ignore[arg-type]


def test_between_any_two_tokens() -> None:
    found = study_path((1,), rows=200, products=20).data
    attention, rnn, lstm = (np.array(found["between"][name]) for name in ("attention", "rnn", "lstm"))
    count = len(found["tokens"])
    assert attention.shape == rnn.shape == lstm.shape == (count, count)
    assert np.all(attention > 0)
    assert np.all(attention.sum(axis=1) < 1)  # a part of each row's weights
    later, earlier = np.tril_indices(count), np.triu_indices(count, 1)
    for chain in (rnn, lstm):
        assert np.all(np.diagonal(chain) == 1)
        assert np.all(chain[later] > 0)
        assert np.all(chain[earlier] == 0)
    # A path over two stretches is the product of both: exactly for the cell, whose path has no direction.
    for i, m, j in ((5, 3, 1), (15, 7, 0)):
        assert lstm[i, j] == pytest.approx(lstm[i, m] * lstm[m, j], rel=1e-12)
    assert study_path((1,), rows=200, products=20, seed=1).data["between"] != found["between"]


def test_path_refuses_what_has_no_meaning() -> None:
    for bad in ({"lengths": (0,)}, {"lengths": ()}, {"gain": 0.0}, {"products": 2}):
        with pytest.raises(InputError):
            study_path(**bad)


# -- statistics -----------------------------------------------------------------------------------------------------


def test_holm_against_the_definition() -> None:
    p = [0.01, 0.2, 0.03, 0.0005]
    assert holm(p) == pytest.approx([0.03, 0.2, 0.06, 0.002])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_holm_controls_the_family() -> None:
    draws = Stream(0, "holm").uniforms((4000, 10))
    rejected = np.array([min(holm(list(row))) < 0.05 for row in draws])
    assert abs(rejected.mean() - (1 - 0.995**10)) < 4 * math.sqrt(0.05 / 4000)


def test_intervals_and_tests_against_scipy() -> None:
    values = list(Stream(0, "t").normals((12,)) + 3)
    m = Measured.of(Estimate.of(values))
    reference = stats.ttest_1samp(values, 2.5)
    assert m.p_equal(2.5) == pytest.approx(float(reference.pvalue), rel=1e-10)
    interval = reference.confidence_interval(0.95)
    assert m.interval() == pytest.approx((interval.low, interval.high), rel=1e-10)
    greater = stats.ttest_1samp(values, 2.0, alternative="greater").pvalue
    less = stats.ttest_1samp(values, 4.0, alternative="less").pvalue
    assert m.p_outside(3.0, 1.0) == pytest.approx(max(greater, less), rel=1e-10)


def test_agreement_is_not_claimed_outside_the_margin() -> None:
    # At the edge of the margin the test must hold its level: 5 % of 2000 runs.
    edge = Stream(0, "edge").normals((2000, 20)) + 1.0
    claimed = [Measured.of(Estimate.of(list(row))).p_outside(0.0, 1.0) < 0.05 for row in edge]
    assert abs(np.mean(claimed) - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_slopes_of_a_power_law() -> None:
    x = [4.0, 8.0, 16.0, 32.0]
    points = [Measured(3 * v**1.5, 0.01 * 3 * v**1.5, 30) for v in x]
    assert log_slope(points[0], points[1], 4, 8).value == pytest.approx(1.5)
    assert log_slope(points[0], points[1], 4, 8).standard_error == pytest.approx(0.01 * math.sqrt(2) / math.log(2))
    assert log_slope(points[0], points[1], 4, 8).freedom == pytest.approx(60)
    assert fitted_slope(points, x).value == pytest.approx(1.5)


def test_slope_intervals_cover() -> None:
    noise = 0.02 * Stream(0, "slopes").normals((1000, 5, 25))
    x = [2.0, 4.0, 8.0, 16.0, 32.0]
    covered = 0
    for run in noise:
        points = [Measured.of(Estimate.of(list(v**0.5 * (1 + e)))) for v, e in zip(x, run, strict=True)]
        low, high = fitted_slope(points, x).interval()
        covered += low <= 0.5 <= high
    assert abs(covered / 1000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 1000) + 0.01


def test_global_p_of_uniform_p_values_is_uniform() -> None:
    p = [global_p(list(row))[1] for row in Stream(0, "global").uniforms((2000, 7))]
    assert stats.kstest(p, "uniform").pvalue > 1e-3


def test_cluster_bootstrap_is_wider_than_pooling_would_be() -> None:
    # Six clusters of 50 columns that move together: the interval must follow the clusters' spread.
    stream = Stream(0, "clusters")
    clusters = stream.normals((6, 1)) + 0.01 * stream.normals((6, 50))
    value, low, high = cluster_bootstrap(clusters, "mean", seed=0, experiment="x")
    assert low < value < high
    assert high - low > 0.5
    assert cluster_bootstrap(clusters, "mean", seed=0, experiment="x") == (value, low, high)


# -- the study of real weights -----------------------------------------------------------------------------------


def test_the_identity_holds_and_the_numbers_add_up(tmp_path: Path) -> None:
    found = study_weights(tiny.write(tmp_path, tiny.gpt2(), tiny.GPT2_CONFIG))
    assert found.outcome == "agrees"
    cube = found.data["cube"]
    assert cube.shape == (13, 2, 3, len(MEASURES))
    parts = sum(cube[..., MEASURES.index(name)] for name in ("isotropic", "alignment", "query_mean"))
    np.testing.assert_allclose(parts, cube[..., MEASURES.index("identity")], rtol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda h: Heads(h.layer, h.q - h.q.mean(axis=1, keepdims=True), h.k, h.v, h.scale, h.causal),
        lambda h: Heads(h.layer, h.q, h.k, h.v, h.scale * (1 + 1e-6), h.causal),
        lambda h: Heads(h.layer, h.q, h.k[:, ::-1, ::-1], h.v, h.scale, h.causal),
    ],
    ids=["query mean dropped", "scale off", "components reversed"],
)
def test_wrong_scores_break_the_identity(wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right_scores = Heads.scores
    monkeypatch.setattr(Heads, "scores", lambda self: right_scores(wrong(self)))
    assert study_weights(tiny.write(tmp_path, tiny.bert(), tiny.BERT_CONFIG)).outcome == "differs"


def test_a_key_bias_changes_nothing(tmp_path: Path) -> None:
    # The mean of the keys cancels in softmax: the same weights come out.
    parts = tiny.bert(layers=1)
    before = study_weights(tiny.write(tmp_path, parts, tiny.BERT_CONFIG)).data["cube"]
    parts["encoder.layer.0.attention.self.key.bias"] += 1.0
    after = study_weights(tiny.write(tmp_path, parts, tiny.BERT_CONFIG)).data["cube"]
    np.testing.assert_allclose(after[..., MEASURES.index("entropy")], before[..., MEASURES.index("entropy")], rtol=1e-5)


def test_rounding_bound_is_neither_broken_nor_idle() -> None:
    stream = Stream(0, "rounding")
    for spread in (1e-3, 1.0, 1e3):
        q, k = spread * stream.normals((20, 8)) + 5, stream.normals((20, 8)) - 3
        s = 0.5 * q @ k.T
        centre = k - k.mean(axis=0)
        direct = float(s.var(axis=1).mean())
        traced = 0.25 * float(((q.T @ q / 20) * (centre.T @ centre / 20)).sum())
        bound = rounding_bound(q, k, 0.5)
        assert abs(direct - traced) <= bound
        assert bound < 1e-8 * direct


def test_isotropic_components_have_an_isotropic_share_of_one() -> None:
    stream = Stream(0, "isotropic")
    heads = Heads(
        0, stream.normals((1, 1500, 4)), stream.normals((1, 1500, 4)), stream.normals((1, 1500, 4)), 0.5, False
    )
    one = weights_module._measure(heads, 0)
    share = one.numbers[MEASURES.index("isotropic")] / one.numbers[MEASURES.index("variance")]
    assert share == pytest.approx(1.0, abs=0.1)


def test_minilm_shows_its_japanese_and_agrees() -> None:
    try:
        found = verify.study("weights")
    except MissingError as missing:
        pytest.skip(str(missing))
    assert found.outcome == "agrees"
    assert "unknown" in found.notes[0]
    assert found.data["cube"].shape[:3] == (12, 6, 12)


def test_every_observable_that_a_claim_names_can_be_measured() -> None:
    import derive
    from compute import sampling
    from compute.observables import OBSERVABLES

    named = {one.observable for one in derive.claims()} - {None}
    assert named
    # An observable of rows, or an estimator of the Monte Carlo engine.
    assert {name for name in named if name not in OBSERVABLES and not hasattr(sampling, str(name))} == set()


# -- options of verify.study ------------------------------------------------------------------------------------------

BAD_OPTIONS: list[tuple[Any, dict[str, Any], str]] = [
    ("variance", {"foo": 1}, "no option 'foo': it takes d_k, components"),
    ("variance", {"d_q": (4,)}, "did you mean d_k"),
    ("saturation", {"lengths": (1,)}, "no option 'lengths'"),
    ("variance", {"d_k": 16}, r"d_k: expected several whole numbers, got 16; write d_k=\(4, 16, 64\)"),
    ("variance", {"d_k": "4:8"}, "got '4:8'"),
    ("variance", {"d_k": (4.5,)}, "each of d_k: expected a whole number of at least 1, got 4.5"),
    ("variance", {"d_k": (0,)}, "at least 1, got 0"),
    ("variance", {"d_k": ("4",)}, "got '4'"),
    ("variance", {"d_k": ()}, "got none"),
    ("variance", {"d_k": None}, "got None"),
    ("variance", {"q_mean": "a"}, "q_mean: expected a finite number, got 'a'"),
    ("variance", {"q_mean": float("nan")}, "q_mean: expected a finite number"),
    ("variance", {"q_sd": 0}, "q_sd: expected a number from"),
    ("variance", {"precision": 0}, "precision: expected a number from 1e-05 to 0.5, got 0"),
    ("variance", {"precision": "x"}, "precision: expected a number"),
    ("variance", {"block": 2.5}, "block: expected a whole number"),
    ("variance", {"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
    ("variance", {"seed": "a"}, "seed: .* got 'a'"),
    ("variance", {"seed": 1.5}, "seed: .* got 1.5"),
    ("variance", {"seed": True}, "seed: .* got True"),
    ("variance", {"progress": "x"}, "progress: expected a function"),
    ("saturation", {"n": 2.5}, "n: expected a whole number"),
    ("saturation", {"rows": "x"}, "rows: expected a whole number"),
    ("path", {"lengths": 4}, "lengths: expected several whole numbers"),
    ("path", {"width": 2.5}, "width: expected a whole number"),
    ("path", {"gain": float("inf")}, "gain: expected a number"),
    ("path", {"products": "a"}, "products: expected a whole number"),
    ("weights", {"model": 5}, "model: expected the path of a safetensors file, got 5"),
    ("weights", {"model": "nowhere.safetensors"}, "nowhere.safetensors"),
    ("weights", {"heads": "a"}, "heads: expected a whole number"),
    ("weights", {"kv_heads": 0}, "kv_heads: expected a whole number"),
    (5, {}, "unknown study 5"),
    (None, {}, "unknown study None"),
]


@pytest.mark.parametrize("case", range(len(BAD_OPTIONS)))
def test_options_that_a_study_cannot_take_are_usage_errors(case: int) -> None:
    name, options, words = BAD_OPTIONS[case]
    with pytest.raises(UsageError, match=words):
        verify.study(name, **options)


def test_options_that_it_can_take_are_taken(tmp_path: Path) -> None:
    found = verify.study("variance", d_k=np.array([4, 8]), precision=np.float64(0.05), block=16, seed=np.int64(3))
    assert [p.factors["d_k"] for p in found.points[:2]] == [4, 8]
    place = tiny.write(tmp_path, tiny.bert(), tiny.BERT_CONFIG)
    assert verify.study("weights", model=str(place)).outcome == "agrees"
