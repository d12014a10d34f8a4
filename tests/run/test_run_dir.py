"""The folder of a run: locks, and phases that count only when whole."""

import errno
import os

import pytest

from slipstream.errors import BadInput
from slipstream.run.lock import Lock
from slipstream.run.run_dir import (
    CLAIM,
    DONE,
    RunDir,
    done_facts,
    mark_done,
    read_json,
    write_json,
)
from slipstream.writing import MARKER


@pytest.fixture
def phase(tmp_path):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "a.pb").write_bytes(b"abc")
    (tmp_path / "b.txt").write_text("b")
    files = [tmp_path / "profiles" / "a.pb", tmp_path / "b.txt"]
    mark_done(tmp_path, files, {"program": "jit_f"})
    return tmp_path


def test_a_sealed_phase_gives_its_facts(phase):
    assert done_facts(phase) == {"program": "jit_f"}
    assert sorted(read_json(phase / DONE)["files"]) == ["b.txt", "profiles/a.pb"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda phase: (phase / "b.txt").write_text("c"),
        lambda phase: (phase / "b.txt").unlink(),
        lambda phase: (phase / DONE).unlink(),
        lambda phase: (phase / DONE).write_text((phase / DONE).read_text()[:-5]),
        lambda phase: (phase / DONE).write_text("[]"),
        lambda phase: write_json(phase / DONE, read_json(phase / DONE) | {"format": 99}),
    ],
    ids=["changed", "gone", "unsealed", "cut", "other JSON", "other format"],
)
def test_what_is_no_longer_whole_is_not_trusted(phase, harm):
    harm(phase)
    assert done_facts(phase) is None


def test_a_folder_has_one_user_at_a_time(tmp_path):
    with RunDir(tmp_path / "run").open(pytest.fail):
        with pytest.raises(BadInput, match=f"process {os.getpid()}.*--out"):
            RunDir(tmp_path / "run").open(pytest.fail)
        # Every rank has a lock of its own.
        RunDir(tmp_path / "run", rank=1).open(pytest.fail).release()
    RunDir(tmp_path / "run").open(pytest.fail).release()


def test_a_folder_in_which_an_earlier_job_lives_is_refused(tmp_path):
    run_dir = RunDir(tmp_path)
    run_dir.clear(run_dir.compare)
    claim = Lock(run_dir.compare / CLAIM)
    assert claim.take()
    with pytest.raises(BadInput, match="the job of an earlier slipstream run still runs"):
        run_dir.open(pytest.fail)
    claim.release()
    run_dir.open(pytest.fail).release()


def test_a_place_that_can_not_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose another folder with --out"):
        RunDir(tmp_path / "file" / "run").open(pytest.fail)


def test_a_file_system_without_flock_is_not_another_run(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    said = []
    with RunDir(tmp_path).open(said.append):
        assert said == [
            f"{tmp_path} can't be locked (Function not implemented): lock.owner marks its user"
        ]
        with pytest.raises(BadInput, match=f"process {os.getpid()}.*remove .*lock.owner.*--out"):
            RunDir(tmp_path).open(pytest.fail)
    RunDir(tmp_path).open(said.append).release()


@pytest.mark.parametrize("name", ["profile", "costs", "compare", "layouts", "cache"])
def test_a_folder_of_somebody_else_is_never_emptied(tmp_path, name):
    thesis = tmp_path / name / "rank0" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("three years of work")
    run_dir = RunDir(tmp_path)
    with pytest.raises(BadInput, match=f"{name} is in the way.*left as it is"):
        run_dir.open(pytest.fail)
    with pytest.raises(BadInput, match="left as it is"):
        run_dir.clear(tmp_path / name)
    run_dir.remove(tmp_path / name / "rank0")
    assert thesis.read_text() == "three years of work"
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("name", ["run.json", "receipt.json", "receipt.html", "lock"])
def test_a_file_of_somebody_else_is_never_replaced(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(BadInput, match=f"{name} is in the way"):
        RunDir(tmp_path).open(pytest.fail)
    assert (tmp_path / name).read_text() == "mine"


def test_other_names_in_the_folder_are_no_concern_of_ours(tmp_path):
    (tmp_path / "train.py").write_text("mine")
    (tmp_path / "profile").mkdir()  # empty: nothing can be lost
    run_dir = RunDir(tmp_path)
    run_dir.open(pytest.fail).release()
    (run_dir.clear(run_dir.profile) / "a").touch()
    (run_dir.clear(run_dir.costs) / "b").touch()
    run_dir.open(pytest.fail).release()
    run_dir.remove(run_dir.profile)
    assert os.listdir(run_dir.clear(run_dir.costs)) == [MARKER]
    assert os.listdir(tmp_path / "profile") == [MARKER]
    assert (tmp_path / "train.py").read_text() == "mine"


def test_a_link_to_a_folder_of_somebody_else_is_not_followed(tmp_path):
    theirs = tmp_path / "data"
    theirs.mkdir()
    (theirs / "a").write_text("a")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "costs").symlink_to(theirs)
    with pytest.raises(BadInput, match="costs is in the way"):
        RunDir(tmp_path / "run").open(pytest.fail)
    assert os.listdir(theirs) == ["a"]


@pytest.mark.parametrize("content", ["[]", "{", '{"a":' * 100_000], ids=["list", "cut", "deep"])
def test_a_damaged_file_is_none(tmp_path, content):
    (tmp_path / DONE).write_text(content)
    assert read_json(tmp_path / DONE) is None
    assert done_facts(tmp_path) is None
