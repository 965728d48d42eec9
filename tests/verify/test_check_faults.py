"""Every fault kind of the public threads that an implementation can show is caught, and filed under the right kind."""

import warnings

import pytest

import tests.verify.faulty_gradients  # noqa: F401 - adds the faulty backward passes
import verify
from tests.verify.faulty import FAULTS, Fault

RUNS = [(f, d) for f in FAULTS for d in f.dtypes]


def test_there_are_enough_of_them() -> None:
    assert len(FAULTS) >= 90
    assert len({f.row for f in FAULTS}) >= 90
    assert len({f.name for f in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize(
    ("fault", "dtype"),
    [pytest.param(f, d, id=f"{f.name}-{d}") for f, d in RUNS],
)
def test_the_fault_is_caught_under_its_kind(fault: Fault, dtype: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = verify.check(
            fault.function,
            spec=fault.spec,
            dtype=dtype,
            backward=fault.backward,
            layout=fault.layout,
            quick=True,
            first=True,
        )
    assert result.exit_code == 1
    assert result.kinds[0] in fault.kinds, result.text()
