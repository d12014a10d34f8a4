"""A Ray cluster on this machine that loses one of its three nodes while it is used."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from slipstream.tune.outcome import Outcome

SMALL = {
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
    "include_log_monitor": False,
}


class LocalCluster:
    """Three nodes with one CPU each, of which a busy one is killed after some compiles."""

    def __init__(self, lost_after: int) -> None:
        self.address = ""
        self._compiles_left = lost_after
        self._killer = threading.Thread(target=self._kill_busy_node, daemon=True)
        self._is_closed = False

    def __enter__(self) -> LocalCluster:
        # A short path, since it holds sockets.
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": self._folder.name,
            "RAY_worker_niceness": "0",  # as nice as the plan without a cluster
        }
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "no_monitor": True, **SMALL}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        nodes = [self._cluster.add_node(wait=False, num_cpus=1, **SMALL) for _ in range(3)]
        self._nodes = nodes
        self._cluster.wait_for_nodes(timeout=120)
        self.address = self._cluster.address
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        if self._killer.is_alive():
            self._killer.join()
        self._cluster.shutdown()
        self._folder.cleanup()

    def count(self, outcome: Outcome) -> None:
        """Call this for every result."""
        if outcome.compile_s is not None:
            self._compiles_left -= 1
            if self._compiles_left == 0:
                self._killer.start()

    def _kill_busy_node(self) -> None:
        while not self._is_closed:
            for node in self._nodes:
                if _is_busy(node):
                    self._cluster.remove_node(node, allow_graceful=False)
                    print("  killed one of three nodes, which was at work", flush=True)
                    return
            time.sleep(0.05)


def _is_busy(node: Any) -> bool:
    """Whether a worker of a node has a candidate; Ray names processes by what they do."""
    raylet = node.all_processes["raylet"][0].process.pid
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet and b"Worker.evaluate" in (process / "cmdline").read_bytes():
                return True
        except (OSError, ValueError):
            continue
    return False
