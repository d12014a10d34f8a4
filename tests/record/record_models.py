"""On a GPU: steps of several models under several settings, timed interleaved and profiled.

    python tests/record/record_models.py OUT.zip [--seconds N] [--models a,b] [--mock] [--tiny]
    python tests/record/record_models.py OUT.zip --keep tests/data/accuracy         # needs no GPU

Writes into OUT.zip, for every model and setting: `<model>.<setting>.xplane.pb`, the optimised
program `<model>.<setting>.hlo.pb`, and `<model>.json` with wall-clock times of every round, flags
and memory. `--mock`: one GPU stands for eight, collectives skipped (a process of its own).
`--keep` writes the recordings small: only programs that ran, without their buffers, and of the
host only the steps.
"""

import argparse
import glob
import gzip
import json
import tempfile
import time
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import models
import numpy as np

NO_GRAPHS = {"xla_gpu_enable_command_buffer": ""}
SETTINGS = {
    "default": {},
    "no_graphs": NO_GRAPHS,
    "cublas": {"xla_gpu_enable_triton_gemm": False},
    "unscheduled": {
        "xla_gpu_enable_latency_hiding_scheduler": False,
        "xla_gpu_enable_analytical_sol_latency_estimator": False,
        "xla_gpu_enable_triton_gemm": False,
        **NO_GRAPHS,
    },
}
TINY = {
    "gpt_scan": dict(layers=2, width=64, heads=2, words=128, tokens=32, batch=2),
    "gpt_unrolled": dict(layers=2, width=64, heads=2, words=128, tokens=32, batch=2),
    "gpt_cudnn": dict(),
    "resnet": dict(batch=2, size=32, blocks=(1, 1)),
    "mixer": dict(layers=2, width=32, patches=16, batch=2, hidden=(32, 64)),
    "gpt_fsdp": dict(layers=2, width=64, heads=2, words=128, tokens=32, batch=8),
}
ROUNDS = 20
STEPS = 3


def kept(out, name, data):
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)


def filled(abstract, sharding, rng, is_state):
    """Random values of an abstract argument, made shard by shard."""

    def values(index):
        shape = [len(range(*i.indices(n))) for i, n in zip(index, abstract.shape, strict=True)]
        if abstract.dtype == jnp.int32:
            return rng.integers(0, 100, shape).astype(np.int32)
        values = rng.random(shape, np.float32) * 0.06 - 0.03
        # Sums of squares (the optimizer's f32 state) must not begin below zero: a program full of
        # NaNs draws less power, and its products run a sixth faster.
        return (np.abs(values) if is_state else values).astype(abstract.dtype)

    return jax.make_array_from_callback(abstract.shape, sharding, values)


class Arms:
    """One model's step under several settings, sharing donated state."""

    def __init__(self, jitted, abstract, settings):
        lowered = jitted.lower(*abstract)
        self.settings = settings
        self.compiled, self.seconds = {}, {}
        for name, options in settings.items():
            begin = time.perf_counter()
            try:
                self.compiled[name] = lowered.compile(compiler_options=options)
            except Exception as error:  # one setting that fails must not cost the others
                print(name, "failed:", str(error)[:300], flush=True)
                continue
            self.seconds[name] = time.perf_counter() - begin
        first = next(iter(self.compiled.values()))
        shardings = first.input_shardings[0]
        rng = np.random.default_rng(0)
        self.value = None
        self.arguments = tuple(
            jax.tree.map(lambda a, s, is_state=i == 1: filled(a, s, rng, is_state), each, placed)
            for i, (each, placed) in enumerate(zip(abstract, shardings, strict=True))
        )

    def run(self, name):
        begin = time.perf_counter()
        *state, self.value = self.compiled[name](*self.arguments)
        jax.block_until_ready(state)
        self.arguments = (*state, *self.arguments[len(state) :])
        return time.perf_counter() - begin

    def interleaved(self, rounds):
        """Seconds of every round; the order turns with the rounds."""
        names = list(self.compiled)
        times = {name: [] for name in names}
        for i in range(rounds + 3):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                seconds = self.run(name)
                if i >= 3:
                    times[name].append(seconds)
        return times

    def profiled(self, name):
        self.run(name)
        self.run(name)
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with tempfile.TemporaryDirectory() as folder:
            jax.profiler.start_trace(folder, profiler_options=options)
            for i in range(STEPS):
                with jax.profiler.StepTraceAnnotation("train", step_num=i):
                    self.run(name)
            jax.profiler.stop_trace()
            (path,) = glob.glob(folder + "/plugins/profile/*/*.xplane.pb")
            return Path(path).read_bytes()


def memory(compiled):
    stats = compiled.memory_analysis()
    kinds = ("argument", "output", "alias", "temp", "generated_code")
    return {kind: getattr(stats, f"{kind}_size_in_bytes", None) for kind in kinds}


def record(out, name, settings, rounds, options):
    begin = time.perf_counter()
    jitted, abstract = getattr(models, name)(jax.devices(), **options)
    arms = Arms(jitted, abstract, settings)
    print(name, "compiled:", {k: round(v, 1) for k, v in arms.seconds.items()}, flush=True)
    times = arms.interleaved(rounds)
    facts = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "settings": {}}
    for setting, compiled in arms.compiled.items():
        facts["settings"][setting] = {
            "flags": settings[setting],
            "step_ms": [round(t * 1e3, 4) for t in times[setting]],
            "memory": memory(compiled),
        }
        (module,) = compiled.runtime_executable().hlo_modules()
        kept(out, f"{name}.{setting}.hlo.pb", module.as_serialized_hlo_module_proto())
        kept(out, f"{name}.{setting}.xplane.pb", arms.profiled(setting))
        middle = np.median(times[setting]) * 1e3
        print(f"  {setting:12s} {middle:9.2f} ms, from {min(times[setting]) * 1e3:.2f}", flush=True)
    facts["loss"] = float(arms.value) if arms.value.is_fully_addressable else None
    print("  loss", facts["loss"], flush=True)
    kept(out, f"{name}.json", json.dumps(facts, indent=1))
    print(f"  {time.perf_counter() - begin:.0f} s", flush=True)


def keep(source, folder):
    """The recordings of a zip as small gzipped files."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith(".xplane.pb"):
                with gzip.GzipFile(f"{folder}/{name}.gz", "wb", 9, mtime=0) as file:
                    file.write(stripped(data))
            elif name.endswith(".json"):
                (Path(folder) / name).write_text(data.decode() + "\n")


def stripped(data):
    from slipstream.sources.proto_schema import message

    space = message("XSpace").FromString(data)
    device = next(plane for plane in space.planes if plane.name.startswith("/device:GPU"))
    ran = _programs(device)
    for plane in space.planes:
        if plane.name == "/host:metadata":
            for key, entry in list(plane.event_metadata.items()):
                if int(entry.name.rpartition("(")[2].rstrip(")")) not in ran:
                    del plane.event_metadata[key]
                    continue
                for stat in entry.stats:
                    if stat.bytes_value:
                        stat.bytes_value = _without_buffers(stat.bytes_value)
        elif plane.name == "/host:CPU":
            _only_steps(plane)
    for i in reversed(range(len(space.planes))):
        if "ScopeRange" in space.planes[i].name:
            del space.planes[i]
    return space.SerializeToString()


def _programs(plane):
    """The ids of the programs that a device's events name."""
    keys = {key for key, stat in plane.stat_metadata.items() if stat.name == "program_id"}
    stats = [s for line in plane.lines for event in line.events for s in event.stats]
    stats = [s for s in stats if s.metadata_id in keys]
    return {s.int64_value or s.uint64_value or int(s.str_value or 0) for s in stats}


def _only_steps(plane):
    steps = {key for key, entry in plane.event_metadata.items() if entry.name == "train"}
    for line in plane.lines:
        kept = [event for event in line.events if event.metadata_id in steps]
        del line.events[:]
        line.events.extend(kept)
    for i in reversed(range(len(plane.lines))):
        if not plane.lines[i].events:
            del plane.lines[i]
    for key in list(plane.event_metadata):
        if key not in steps:
            del plane.event_metadata[key]


def _without_buffers(data):
    """An HloProto with its module alone, and files named as they are in the repository."""
    from slipstream.sources.proto_schema import message

    proto = message("HloProto").FromString(data)
    proto.ClearField("buffer_assignment")
    names = proto.hlo_module.stack_frame_index.file_names
    for i, name in enumerate(names):
        names[i] = name[max(name.find("tests/record/"), 0) :]
    return proto.SerializeToString()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--models", default="gpt_scan,resnet,gpt_cudnn,mixer")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no model after that")
    parser.add_argument("--mock", action="store_true", help="one GPU stands for eight")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--keep", default="", help="write what was recorded into this folder")
    options = parser.parse_args()
    if options.keep:
        keep(options.out, options.keep)
        return
    begin = time.perf_counter()
    names, settings = options.models.split(","), SETTINGS
    if options.mock:
        if not options.tiny:
            jax.config.update("jax_mock_gpu_topology", "1x8x1")
        names = ["gpt_fsdp"]
        alone = {"xla_gpu_shard_autotuning": False}
        settings = {"no_graphs": {**alone, **NO_GRAPHS}, "default": alone}
    if jax.default_backend() != "gpu":
        settings = {"default": {}}
    for name in names:
        if time.perf_counter() - begin > options.seconds:
            print(name, "left out: no time left")
            continue
        try:
            record(
                options.out, name, settings, 3 if options.tiny else ROUNDS,
                TINY[name] if options.tiny else {},
            )  # fmt: skip
        except Exception as error:  # the next model is worth recording all the same
            print(name, "failed:", str(error)[:2000], flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()
