"""A folder and its copy in a bucket: what is copied, what is kept, and what never leaves."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from s3_server import S3Server
from slipstream import BadInput
from slipstream.remote import mirroring
from slipstream.remote.mirror import Mirror, without_secrets
from slipstream.remote.mirroring import Mirroring, copy_now, local_folder
from slipstream.remote.paths import RemotePath

URL = "s3://bucket/runs/a"
NAMES = ("profile", "run.json", "receipt.json", ".slipstream", "study.sqlite3")
SECRET = "hunter2hunter2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "here"
    (found / "profile/rank0").mkdir(parents=True)
    (found / "profile/rank1").mkdir()
    for name in ("receipt.json", ".slipstream", "profile/rank0/p.pb", "profile/rank1/p.pb"):
        (found / name).write_text(name)
    return found


def mirror(folder: Path, rank: int = 0) -> Mirror:
    return Mirror(folder, RemotePath(URL), rank)


def copied(s3: S3Server) -> list[str]:
    return [key.removeprefix("runs/a/") for key in s3.keys("runs/a")]


def test_a_file_is_copied_once_it_stays_as_it_is(s3: S3Server, folder: Path) -> None:
    (folder / "profile/rank1/p.pb").unlink()
    found = mirror(folder)
    assert found.push(is_last=False) == 0, "each might still be growing"
    (folder / "receipt.json").write_text("longer")
    assert found.push(is_last=False) == 2
    assert copied(s3) == [".slipstream", "profile/rank0/p.pb"]
    assert found.push(is_last=True) == 1 and found.push(is_last=True) == 0
    assert s3.get("runs/a/receipt.json") == b"longer"
    assert mirror(folder).push(is_last=True) == 0, "it is noted what was copied"


def test_each_rank_copies_its_own_files(s3: S3Server, folder: Path) -> None:
    assert mirror(folder, 1).push(is_last=True) == 1
    assert copied(s3) == ["profile/rank1/p.pb"]
    assert mirror(folder).push(is_last=True) == 3


def test_locks_and_temporary_files_stay_here(s3: S3Server, folder: Path) -> None:
    names = ("lock", "lock.rank3", "lock.owner", ".receipt.json.0123456789ab", "cache/x/y",
             "profile/rank0/claim", "profile/rank0/.recording-abc/x", "a.sqlite3-wal")  # fmt: skip
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "link").symlink_to("receipt.json")
    mirror(folder).push(is_last=True)
    assert copied(s3) == [".slipstream", "profile/rank0/p.pb", "receipt.json"]


def test_what_is_removed_here_is_removed_there_and_nothing_else(s3: S3Server, folder: Path) -> None:
    mirror(folder).push(is_last=True)
    s3.put("runs/a/others", b"somebody else's")
    (folder / "profile/rank0/p.pb").unlink()
    mirror(folder).push(is_last=True)
    assert copied(s3) == [".slipstream", "others", "receipt.json"]


def test_another_machine_gets_what_the_bucket_has(s3: S3Server, folder: Path, tmp_path) -> None:
    mirror(folder).push(is_last=True)
    s3.put("runs/a/others/large", b"not looked at")
    elsewhere = tmp_path / "there"
    elsewhere.mkdir()
    assert mirror(elsewhere).pull(NAMES) == (3, [])
    assert (elsewhere / "profile/rank0/p.pb").read_text() == "profile/rank0/p.pb"
    assert not (elsewhere / "others").exists()
    assert mirror(elsewhere).pull(NAMES) == (0, [])
    assert mirror(elsewhere).push(is_last=True) == 0
    (elsewhere / "receipt.json").write_text("newer")
    mirror(elsewhere).push(is_last=True)
    assert mirror(folder).pull(NAMES) == (1, [])
    assert (folder / "receipt.json").read_text() == "newer"


def test_what_changed_on_both_sides_stays_as_it_is_here(s3: S3Server, folder: Path) -> None:
    mirror(folder).push(is_last=True)
    s3.put("runs/a/receipt.json", b"theirs")
    (folder / "receipt.json").write_text("ours, not copied yet")
    assert mirror(folder).pull(NAMES) == (0, ["receipt.json"])
    assert (folder / "receipt.json").read_text() == "ours, not copied yet"


def test_credentials_never_leave(s3: S3Server, folder: Path) -> None:
    job = ["python", "t.py", "--api-key", SECRET, f"--db=pg://me:{SECRET}@host/x"]
    facts = {"command": job, "environment": {"HF_TOKEN": SECRET, "XLA_FLAGS": "--a=1"}}
    (folder / "run.json").write_text(json.dumps(facts))
    mirror(folder).push(is_last=True)
    assert json.loads(s3.get("runs/a/run.json")) == {
        "command": ["python", "t.py", "--api-key", "***", "--db=pg://host/x"],
        "environment": {"HF_TOKEN": "***", "XLA_FLAGS": "--a=1"},
    }
    assert without_secrets([1, {"a": [], "b": None}]) == [1, {"a": [], "b": None}]


def test_a_database_in_use_is_copied_as_one_state(s3: S3Server, folder: Path, tmp_path) -> None:
    file = folder / "study.sqlite3"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (x)")
        database.execute("INSERT INTO t VALUES (1)")
        database.commit()
        mirror(folder).push(is_last=False)
        copy = tmp_path / "copy.sqlite3"
        copy.write_bytes(s3.get("runs/a/study.sqlite3"))
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT x FROM t").fetchall() == [(1,)]


def test_names_that_lead_elsewhere_are_not_followed() -> None:
    from slipstream.remote.mirror import is_inside

    assert is_inside("a/b") and not is_inside("../a") and not is_inside("/a") and not is_inside("")


def test_a_process_copies_while_the_work_goes_on(s3: S3Server, tmp_path: Path) -> None:
    said: list[str] = []
    s3.put("runs/a/receipt.json", b"earlier")
    folder = tmp_path / "here"
    copying = Mirroring(URL, folder, NAMES, said.append)
    copying.start()
    assert (folder / "receipt.json").read_bytes() == b"earlier"
    (folder / "run.json").write_text("{}")
    assert copying.finish() and said == []
    assert copied(s3) == ["receipt.json", "run.json"]


def test_a_bucket_that_is_not_there_is_a_warning(s3: S3Server, tmp_path: Path) -> None:
    said: list[str] = []
    copying = Mirroring("s3://nobucket/a", tmp_path, NAMES, said.append)
    copying.start()
    (tmp_path / "run.json").write_text("{}")
    assert not copying.finish()
    first, last = said
    assert "there is no bucket nobucket" in first and f"is written to {tmp_path}, and" in first
    assert last.endswith(
        f"everything is in {tmp_path}; to copy it later: python -m slipstream.remote.mirroring "
        f"{tmp_path} s3://nobucket/a"
    )
    assert copy_now(str(tmp_path), URL) == 0 and copied(s3) == ["run.json"]


def test_a_bucket_that_hangs_is_given_up(s3: S3Server, tmp_path: Path, monkeypatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(mirroring, "PATIENCE_S", 0.05)
    monkeypatch.setattr(mirroring, "STALLED_S", 0.05)
    copying = Mirroring(URL, tmp_path, NAMES, said.append)
    copying.start()
    assert not copying.finish()
    assert said[0].startswith(f"{URL} did not answer; everything is written to {tmp_path}")
    assert said[1].startswith(f"{URL} does not answer; everything is in {tmp_path}")


def test_what_never_works_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nosuch:// is no protocol"):
        Mirroring("nosuch://a/b", tmp_path, NAMES, print).start()


def test_memory_is_copied_within_the_process(tmp_path: Path) -> None:
    import fsspec

    copying = Mirroring("memory://m/a", tmp_path, NAMES, print)
    copying.start()
    (tmp_path / "run.json").write_text("{}")
    assert copying.finish()
    assert fsspec.filesystem("memory").cat_file("/m/a/run.json") == b"{}\n"


def test_a_url_has_its_own_local_folder() -> None:
    first = local_folder("s3://b/runs/exp 7/", "slipstream-run")
    assert first.parent == Path.cwd() and first.name.startswith("slipstream-run-exp-7-")
    assert first == local_folder("s3://b/runs/exp 7", "slipstream-run")
    assert first != local_folder("s3://c/runs/exp 7", "slipstream-run")
