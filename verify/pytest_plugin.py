"""pytest plugin: the fixture `attention_check`. Imports nothing heavy: what it offers is loaded when a test asks.

Guarantees: a finding fails the test with the whole finding as its message.
Does not: collect tests, or change any option of pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from verify.checking.result import CheckResult


@pytest.fixture
def attention_check() -> Callable[..., CheckResult]:
    """`attention_check(fn, spec=..., dtype=..., ...)`: verify.check, quick, failing the test on a finding.

    Options as in verify.check; quick=False asks for the full check.
    """

    def check(target: Any, **options: Any) -> CheckResult:
        from verify.checking.api import check as judge

        result = judge(target, **{"quick": True, **options})
        if not result.ok:
            pytest.fail(result.text(), pytrace=False)
        return result

    return check
