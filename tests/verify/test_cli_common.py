"""What every command refuses before it does any work, and what is read before it is trusted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import derive
from derive.errors import StatementError
from derive.language import array, index, size, total
from verify import errors
from verify.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study", "variance", "--seed", "-1"], "at least 0"),
        (["check", "x.py:f", "--json", "no/such/folder/x.json"], "does not exist; make it first"),
        (["check", "x.py:f", "--junit-xml", "no/such/folder/x.xml"], "does not exist; make it first"),
        (["study", "weights", "--json", "."], "is a folder"),
        (["check", "x.py:f", "--timeout", "nan"], "expected a finite number above 0"),
        (["check", "x.py:f", "--budget", "inf"], "expected a finite number above 0"),
        (["check", "x.py:f", "--memory", "-1"], "expected a finite number above 0"),
    ],
)
def test_refused_before_any_work(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == errors.USAGE
    assert message in capsys.readouterr().err


def test_certify_reads_only_npz(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = tmp_path / "q.npy"
    np.save(single, np.zeros((2, 2)))
    text = tmp_path / "q.txt"
    text.write_text("not an archive")
    empty = tmp_path / "empty.npz"
    empty.touch()
    for path in (single, text, empty):
        assert main(["certify", str(path)]) == errors.USAGE
        assert "is no .npz file" in capsys.readouterr().err
    whole = tmp_path / "q.npz"
    np.savez(whole, q=np.zeros((2, 2)), k=np.zeros((2, 2)), v=np.zeros((2, 2)))
    torn = tmp_path / "torn.npz"
    data = bytearray(whole.read_bytes())
    data[len(data) // 4] ^= 0xFF
    torn.write_bytes(data)
    assert main(["certify", str(torn)]) == errors.USAGE
    assert main(["certify", str(tmp_path / "none.npz")]) == errors.USAGE
    capsys.readouterr()
    for words in (["--example", "cancel"], ["--svg", str(tmp_path / "x.svg")], ["--algorithm", "eager"]):
        assert main(["certify", str(whole), *words]) == errors.USAGE
        assert capsys.readouterr().out == ""
    assert main(["certify", str(whole)]) == errors.AGREES


@pytest.mark.parametrize("text", ["flash:block=x", "flash:block=1.5", "flash:block=true", "flash:blok=1", "slow:"])
def test_an_algorithm_that_cannot_be_read(text: str) -> None:
    from verify.checking.allowance import parse_algorithm

    with pytest.raises(errors.UsageError, match="--algorithm"):
        parse_algorithm(text, "float32")


def test_prove_refuses_what_it_would_otherwise_ignore() -> None:
    n, i = size("n"), index("i")
    x = array("x", n)
    side = total(x[i], i, n)
    with pytest.raises(StatementError, match=r"expected one of derive\.assumptions"):
        derive.prove(side, side, [...])
    with pytest.raises(StatementError, match="relation is"):
        derive.prove(side, side, (), "!!")  # type: ignore[arg-type]
    with pytest.raises(StatementError, match="text is never evaluated"):
        derive.prove("1 + 1", 2)


def test_the_public_face_is_there_when_named() -> None:
    assert derive.moments.__name__ == "derive.moments"
    assert derive.oracle.__name__ == "derive.oracle"


def test_a_sum_over_text_is_refused() -> None:
    with pytest.raises(StatementError, match="is text"):
        total("1", index("i"), size("n"))
