import os

import pytest

from slipstream.errors import BadInput
from slipstream.writing import atomic_write


def test_the_file_appears_whole(tmp_path):
    target = tmp_path / "out.csv"
    target.write_text("old")
    with atomic_write(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_a_failure_leaves_what_was_there(tmp_path):
    target = tmp_path / "out.csv"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_others_may_read_it_as_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with atomic_write(tmp_path / "out") as temporary:
        temporary.touch()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_that_is_not_there(tmp_path):
    target = tmp_path / "nowhere" / "out.csv"
    with pytest.raises(BadInput, match="can't write .*nowhere/out.csv: No such file"):
        atomic_write(target).__enter__()
