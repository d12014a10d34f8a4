"""A Ray cluster on this machine: a head without CPUs and two nodes with one each.

Prints its address and the processes of the two nodes, and ends with its input.
"""

import json
import sys

from ray.cluster_utils import Cluster

SMALL = {
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
    "include_log_monitor": False,
}

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "no_monitor": True, **SMALL})
nodes = [cluster.add_node(wait=False, num_cpus=1, **SMALL) for _ in range(2)]
cluster.wait_for_nodes(timeout=120)
raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
sys.stdin.read()
cluster.shutdown()
