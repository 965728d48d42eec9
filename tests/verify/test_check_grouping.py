"""Findings are shown by cause: one diagnosis once; without one, by what is seen and by the features it needs."""

from typing import Any

import numpy as np

import verify
from tests.verify.correct import plain
from verify.checking.grouping import features_of, grouped, refusals
from verify.checking.result import Finding


def finding(rule: str, features: str = "", *, diagnosis: str = "", numbers: int = 9, case: str = "c") -> Finding:
    return Finding(
        "proved wrong" if rule == "values" else "property broken", "k", rule, "m", case=case, diagnosis=diagnosis,
        index=(0, 0, 0, 0) if rule != "raises" else (), features=frozenset(features.split()), numbers=numbers,
    )  # fmt: skip


def cases(*findings: Finding) -> list[list[str]]:
    return [[f.case for f in group] for group in grouped(findings)]


def test_fewer_features_take_in_more() -> None:
    first, second = finding("values", "mask", case="a"), finding("values", "mask causal", case="b")
    third = finding("values", "window", case="c")
    assert cases(first, second, third) == [["a", "b"], ["c"]]
    assert cases(second, third, first, finding("values", case="d")) == [["d", "c", "a", "b"]]


def test_the_smallest_example_is_shown() -> None:
    assert cases(finding("values", numbers=40, case="large"), finding("values", numbers=3, case="small")) == [
        ["small", "large"]
    ]
    # A proof comes before a property of fewer numbers.
    assert cases(finding("isolation", numbers=3, case="property"), finding("values", case="value")) == [
        ["value", "property"]
    ]


def test_different_symptoms_and_diagnoses_stay_apart() -> None:
    rows = (
        finding("values", case="a"), finding("non-finite", case="b"), finding("raises", case="c"),
        finding("values", "grad", case="d"), finding("values", diagnosis="x", case="e"),
        finding("values", "mask", diagnosis="x", case="f"), finding("values", diagnosis="y", case="g"),
    )  # fmt: skip
    assert cases(*rows) == [["a"], ["b"], ["c"], ["d"], ["e", "f"], ["g"]]


def test_every_finding_is_in_one_group() -> None:
    rng = np.random.default_rng(0)
    names, rules = ["mask", "causal", "window", "grad"], ["values", "non-finite", "raises", "isolation"]
    some = [
        finding(str(rng.choice(rules)), " ".join(n for n in names if rng.random() < 0.4), case=str(i),
                diagnosis=str(rng.choice(["", "", "x"])))
        for i in range(60)
    ]  # fmt: skip
    groups = grouped(some)
    assert sorted(id(f) for group in groups for f in group) == sorted(id(f) for f in some)
    assert all(len({f.diagnosis for f in group}) == 1 for group in groups)


def test_an_unknown_fault_is_read_once() -> None:
    """A fault that no misreading explains, under one feature: many findings, one group, its smallest call first."""

    def odd(q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False) -> Any:
        on = mask is not None
        return plain(q, k, v, mask=mask, causal=causal) * (1 + 0.01 * on * np.cos(np.arange(v.shape[-1]))).astype(
            q.dtype
        )

    result = verify.check(odd, dtype="float64", quick=True)
    groups = grouped(result.findings)
    assert len(result.findings) > 4
    assert len(groups) == 1, result.text()
    values = [f for f in result.findings if f.features == {"mask"} and f.verdict == "proved wrong"]
    assert groups[0][0].numbers == min(f.numbers for f in values)
    assert result.text().count("PROVED WRONG") + result.text().count("PROPERTY BROKEN") == 1
    assert len(result.to_json()["findings"]) == len(result.findings)


def test_two_unknown_faults_are_read_twice() -> None:
    def odd(q: Any, k: Any, v: Any, *, mask: Any = None, causal: bool = False) -> Any:
        out = plain(q, k, v, mask=mask, causal=causal)
        out = out * (1 + 0.01 * (mask is not None) * np.cos(np.arange(v.shape[-1])))
        return (
            out if not causal or out.shape[2] < 2 else np.where(np.arange(out.shape[2])[:, None] == 1, out + 0.3, out)
        )

    result = verify.check(odd, dtype="float64", quick=True)
    firsts = [group[0] for group in grouped(result.findings)]
    assert {frozenset({"mask"}), frozenset({"causal"})} <= {f.features for f in firsts}
    assert len(firsts) == 2, result.text()


def test_refusals_of_one_reason_are_one_line() -> None:
    told = [
        "gradients: none",
        *(f"case {i}: the target refuses it (odd)" for i in range(5)),
        "b: the target refuses it (x)",
    ]
    assert refusals(told) == [
        "gradients: none",
        "5 cases: the target refuses them (odd): case 0; case 1; case 2, and 2 more",
        "b: the target refuses it (x)",
    ]


def test_features_of_a_call() -> None:
    from verify.checking.calls import Call

    q = np.zeros((1, 1, 2, 2))
    assert features_of(Call(q, q, q), "values") == frozenset()
    assert features_of(Call(q, q, q), "tile max") == {"tile max"}
    assert features_of(Call(q, q, q, mask=np.ones((2, 2), bool), memory=(("q", "strided"),)), "strides") == {
        "mask", "memory",
    }  # fmt: skip
