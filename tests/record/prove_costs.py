"""On a GPU: costs from inside command buffers, and a compile that fails if XLA misses any.

`python tests/record/prove_costs.py`: profiles both models of benchmarks/pgle_loop.py as XLA runs
them by default, makes costs, and compiles again with XLA's accuracy checker set to fail.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from pgle_loop import LHS, MODELS, Arms, gpt

from slipstream.costs.extract import extract_costs

STRICT = {"xla_gpu_pgle_accuracy_checker": "PGLE_STRICTNESS_LEVEL_ERROR"}


def main():
    for name, options in MODELS.items():
        arms = Arms(*gpt(**options, offload=name == "host offload"))
        arms.compile("default")
        table = extract_costs(arms.profile("default"))
        with tempfile.TemporaryDirectory() as folder:
            table.write(f"{folder}/costs.pb")
            path = {"xla_gpu_pgle_profile_file_or_directory_path": f"{folder}/costs.pb"}
            arms.compile("strict", **LHS, **STRICT, **path)
        print(f"{name}: {len(table)} costs, XLA's checker found every instruction", flush=True)


if __name__ == "__main__":
    main()
