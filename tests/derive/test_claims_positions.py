"""The positions family: proved, and its mutants refused."""

import pytest

from derive.catalogue import claim
from tests.derive.claim_checks import assert_mutants_refused, assert_proved, ids


@pytest.mark.parametrize("claim_id", ids("positions"))
def test_proved(claim_id: str) -> None:
    assert_proved(claim(claim_id))


@pytest.mark.parametrize("claim_id", ids("positions"))
def test_mutants_are_refused(claim_id: str) -> None:
    assert_mutants_refused(claim(claim_id))
