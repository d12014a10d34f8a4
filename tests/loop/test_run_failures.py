"""What goes wrong around a job, in each phase: the job ends as it would have, and nothing half-done
is trusted later."""

import shutil
import signal
import subprocess
import sys
import time

import pytest

from run_jobs import Started, is_alive, plain, run, train
from slipstream.loop.store import sealed

JOB = [sys.executable, "train.py", "30"]
PHASES = [
    ("profile", ("warming up", "capturing")),
    ("compare", ("preparing", "comparing")),
    ("compare", ("comparing", "checking", "settled")),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    train(folder)
    return folder


@pytest.fixture(scope="module")
def expected(place):
    return plain(JOB, place).out


@pytest.fixture(scope="module")
def profiled(place, expected):
    """A folder with profile and costs that are done."""
    done = run(place / "profiled", JOB, "--rounds", "8", cwd=place)
    assert (done.code, done.out) == (0, expected)
    return place / "profiled"


@pytest.fixture
def begun(place, profiled, request):
    """Starts a run in a folder of its own; for the compare phase, with the profile done."""

    runs = []

    def begin(phase, **more):
        folder = place / request.node.name.replace("[", "-").rstrip("]")
        if phase == "compare":
            for part in ("profile", "costs"):
                shutil.copytree(profiled / part, folder / part)
        runs.append(Started(folder, JOB, "--rounds", "8", cwd=place, **more))
        return runs[-1]

    yield begin
    for one in runs:
        one.let_end()


def check_again(place, folder, expected):
    """A run in the same folder afterwards goes all the way."""
    done = run(folder, JOB, "--rounds", "8", cwd=place)
    assert (done.code, done.out) == (0, expected), done.err
    assert sealed(folder / "profile" / "rank0") and sealed(folder / "compare" / "rank0")
    assert done.receipt["arms"]


def interrupted(started):
    """Ctrl-C, as often as it takes: an interrupt that meets a destructor is lost to any Python."""
    for _ in range(5):
        started.send(signal.SIGINT)
        try:
            started.process.wait(12)
            break
        except subprocess.TimeoutExpired:
            continue
    return started.wait()


@pytest.mark.parametrize(("phase", "states"), PHASES)
def test_ctrl_c_reaches_the_job_and_its_end_is_ours(begun, place, phase, states):
    started = begun(phase)
    started.wait_for(phase, *states)
    done = interrupted(started)
    assert done.code == 130
    assert "KeyboardInterrupt" in done.err
    started.let_end()


@pytest.mark.parametrize(("phase", "states"), PHASES)
def test_a_killed_launcher(begun, place, expected, phase, states):
    """A profile run dies with it; the job itself goes on to its own end."""
    started = begun(phase)
    pid = started.wait_for(phase, *states)["process"]
    started.send(signal.SIGKILL)
    started.process.wait(30)
    if phase == "compare":
        assert is_alive(pid)
        refused = run(started.folder, JOB, cwd=place)
        assert refused.code == 2
        assert "a job of an earlier slipstream run still runs" in refused.err
        started.let_end()
    wait_while_alive(pid)
    started.let_end()
    if phase == "compare":
        assert expected == started.wait().out
    if "settled" not in states:
        check_again(place, started.folder, expected)


def wait_while_alive(pid):
    end = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.02)


def test_ctrl_c_and_kill_between_the_phases(place, profiled, expected):
    """The costs phase has no job; here it is a second rank's, and waits for the first one's."""
    folder = place / "between"
    for rank in ("rank0", "rank1"):
        shutil.copytree(profiled / "profile" / "rank0", folder / "profile" / rank)
    ranks = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, 137)):
        started = Started(folder, JOB, cwd=place, **ranks)
        started.wait_until(lambda: (folder / "lock.rank1").exists())
        time.sleep(1)
        started.send(number)
        assert started.wait().code == code
        started.let_end()
        assert not (folder / "costs").exists() and not (folder / "compare").exists()
    check_again(place, folder, expected)


def test_two_runs_in_one_folder(begun, place, expected):
    started = begun("compare")
    started.wait_for("compare", "comparing", "checking", "settled")
    second = run(started.folder, JOB, cwd=place)
    assert second.code == 2
    assert "another slipstream run works in" in second.err
    started.let_end()
    done = started.wait()
    assert (done.code, done.out) == (0, expected)
    assert done.receipt["arms"]


def test_a_profile_of_another_program_is_not_used(place, profiled):
    folder = place / "other"
    for part in ("profile", "costs"):
        shutil.copytree(profiled / part, folder / part)
    train(place, size=48, name="other.py")
    job = [sys.executable, "other.py", "30"]
    done = run(folder, job, "--rounds", "8", cwd=place)
    assert (done.code, done.out) == (0, plain(job, place).out)
    assert "the profile was of another program" in done.err
    assert sealed(folder / "compare" / "rank0")["reused_profile"] is False
    assert not (folder / "profile" / "rank0").exists()


def test_a_damaged_profile_is_made_again(place, profiled, expected):
    folder = place / "damaged"
    shutil.copytree(profiled / "profile", folder / "profile")
    (recording,) = (folder / "profile").rglob("*.xplane.pb")
    recording.write_bytes(recording.read_bytes()[:-10])
    assert sealed(folder / "profile" / "rank0") is None
    done = run(folder, JOB, "--rounds", "8", cwd=place)
    assert (done.code, done.out) == (0, expected)
    assert "from an earlier run" not in done.err


def test_an_empty_recording_is_told_with_its_likely_cause(place, expected):
    """XLA:CPU is recorded by the host tracer: without it, there is as little as without CUPTI."""
    options = '{"host_tracer_level": 0, "python_tracer_level": 0}'
    done = run(
        place / "empty", JOB, "--rounds", "8", cwd=place, SLIPSTREAM_PROFILER_OPTIONS=options
    )
    assert (done.code, done.out) == (0, expected)
    assert "no costs: the recording shows no work of the device; most likely" in done.err
    assert "DCGM" in done.err
    names = {arm["name"]: arm["error"] for arm in done.receipt["arms"]}
    assert names["costs"] == "there are no costs for this program"
    assert names["no command buffers"] is None


@pytest.fixture
def small_disk(tmp_path):
    """A disk with room for a few files: a tmpfs where one may be mounted, else a limit on files."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        is_mounted = False
    yield folder, ([] if is_mounted else ["prlimit", "--fsize=20000"])
    if is_mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("options", [(), ("--in-place",)])
def test_a_full_disk(small_disk, place, expected, options):
    folder, limit = small_disk
    done = run(folder / "out", [*limit, *JOB], *options, cwd=place, JOB_UNTIL="")
    assert (done.code, done.out) == (0, expected), done.err
    assert "can't tell" in done.err
    # Nothing that is there says more than that.
    facts = [sealed(done.parent) for done in folder.rglob("done.json")]
    assert [fact["verdict"] for fact in facts] in ([], ["can't tell"])
