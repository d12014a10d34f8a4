"""The folder of a run: locks, and phases that count only when whole."""

import os

import pytest

from slipstream.errors import BadInput
from slipstream.run.run_dir import (
    CLAIM,
    DONE,
    Lock,
    RunDir,
    done_facts,
    mark_done,
    read_json,
    write_json,
)


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
    with RunDir(tmp_path / "run").open():
        with pytest.raises(BadInput, match=f"process {os.getpid()}.*--out"):
            RunDir(tmp_path / "run").open()
        # Every rank has a lock of its own.
        RunDir(tmp_path / "run", rank=1).open().release()
    RunDir(tmp_path / "run").open().release()


def test_a_folder_in_which_an_earlier_job_lives_is_refused(tmp_path):
    run_dir = RunDir(tmp_path)
    run_dir.compare.mkdir(parents=True)
    claim = Lock(run_dir.compare / CLAIM)
    assert claim.take()
    with pytest.raises(BadInput, match="the job of an earlier slipstream run still runs"):
        run_dir.open()
    claim.release()
    run_dir.open().release()


def test_a_lock_that_a_fork_lets_go_of_stays_the_parents(tmp_path):
    lock = Lock(tmp_path / "lock")
    assert lock.take()
    child = os.fork()
    if not child:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert not Lock(tmp_path / "lock").take()
    lock.release()
    assert Lock(tmp_path / "lock").is_free()


def test_a_place_that_can_not_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="choose another folder with --out"):
        RunDir(tmp_path / "file" / "run").open()
