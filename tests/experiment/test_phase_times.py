"""The seconds of each phase, on one rank and over all."""

from slipstream.consensus.consensus import Consensus
from slipstream.consensus.kvstore import FolderStore
from slipstream.experiment import phase_times
from slipstream.experiment.phase_times import PhaseTimes, send_times, times_of_ranks


def test_a_phase_that_begins_twice_counts_twice(monkeypatch):
    clock = iter([0.0, 2.0, 10.0, 13.0, 20.0, 21.0])
    monkeypatch.setattr(phase_times.time, "monotonic", lambda: next(clock))
    times = PhaseTimes()
    for _ in range(2):
        with times.measured("compile"):
            pass
    times.begin("vote")
    times.end_all()
    times.end("vote")
    assert times.seconds == {"compile": 5.0, "vote": 1.0}


def test_the_leader_reports_the_slowest_rank_of_each_phase(tmp_path):
    ranks = [Consensus((0, 1, 2), rank, FolderStore(tmp_path), "job") for rank in range(3)]
    for rank, seconds in zip(ranks, (1.0, 5.0, 2.0), strict=True):
        times = PhaseTimes()
        times.seconds = {"capture": 0.5, "compile": seconds}
        rank.waits.longest_s = seconds / 10
        send_times(rank, times)
    assert times_of_ranks(ranks[0], is_over=True) == {
        "count": 3,
        "reported": 3,
        "seconds": {
            "capture": {"median": 0.5, "slowest": 0.5, "rank": 2},
            "compile": {"median": 2.0, "slowest": 5.0, "rank": 1},
            "longest step wait": {"median": 0.2, "slowest": 0.5, "rank": 1},
        },
    }
    other = times_of_ranks(ranks[1], is_over=True)
    assert other["reported"] == 1 and other["seconds"]["compile"]["slowest"] == 5.0


def test_ranks_that_report_nothing_are_not_waited_for_where_the_loop_ended_early(tmp_path):
    leader = Consensus((0, 1), 0, FolderStore(tmp_path), "job")
    send_times(leader, PhaseTimes())
    assert times_of_ranks(leader, is_over=False)["reported"] == 1


def test_a_process_on_its_own_reports_for_itself():
    alone = Consensus()
    assert times_of_ranks(alone, is_over=True) == {"count": 1, "reported": 0, "seconds": {}}
    send_times(alone, PhaseTimes())
    assert times_of_ranks(alone, is_over=True)["reported"] == 1
