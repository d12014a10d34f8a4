"""A process that runs a function on the local GPU and profiles it: `machines calibrate --kernel`.

    profile  {module, function, folder}   → {device, runs}

Command buffers are off, so that every kernel carries its instruction's name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slipstream.compiler.worker.process import WorkerFailed, WorkerProcess
from slipstream.compiler.worker.rpc import Answer, serve_stdin
from slipstream.errors import BadInput, Missing

WARM, RUNS = 5, 20
LABELLED = {"xla_gpu_enable_command_buffer": ""}


def profile_function(target: str, folder: Path) -> str:
    """Profile FILE.py:FUNCTION on the local GPU into a folder; returns the GPU's name."""
    from slipstream.compiler.local_gpu import visible_gpu

    module, _, function = target.rpartition(":")
    if not module or not function:
        raise BadInput(f"{target} does not name a function; expected FILE.py:FUNCTION")
    if visible_gpu() is None:
        raise Missing(
            f"no GPU is visible to measure {target} on; run this command on the machine to "
            "calibrate, and take its machine file along"
        )
    worker = WorkerProcess("", use_gpu=True, module=__name__)
    try:
        answer, _ = worker.ask(
            "profile", module=module, function=function, folder=str(folder.absolute())
        )
    except WorkerFailed as failed:
        line = failed.answer.get("line") or f"the process ended with {failed.answer.get('code')}"
        raise BadInput(f"{target} can't be measured: {line}; run it alone first") from None
    finally:
        worker.close()
    return str(answer["device"])


class KernelBench:
    """Runs in a process of its own: XLA may end it."""

    def profile(self, module: str, function: str, folder: str) -> Answer:
        import jax

        from slipstream.bench.synthetic_inputs import synthetic_inputs
        from slipstream.compiler.worker.lowering import built_function
        from slipstream.compiler.worker.worker import import_target

        devices = list(jax.devices())
        made, abstract = built_function(getattr(import_target(module), function), devices)
        jitted = made if hasattr(made, "lower") else jax.jit(made)
        options: Any = LABELLED if devices[0].platform == "gpu" else None
        compiled = jitted.lower(*abstract).compile(compiler_options=options)
        inputs = synthetic_inputs(abstract, 0)
        tree = jax.tree.structure(abstract)

        def run() -> None:
            # Made anew each time: a function may consume its inputs.
            arguments = jax.tree.unflatten(tree, [one.on_devices() for one in inputs])
            for leaf in jax.tree.leaves(compiled(*arguments)):
                leaf.block_until_ready()

        for _ in range(WARM):
            run()
        with jax.profiler.trace(folder):
            for number in range(RUNS):
                with jax.profiler.StepTraceAnnotation("train", step_num=number):
                    run()
        return {"device": devices[0].device_kind, "runs": RUNS}


if __name__ == "__main__":
    serve_stdin(KernelBench())
