"""Many compiles of one target: it is lowered once, workers are reused, and results are cached.

with compiler("train.py:build", on="8xH200") as session:
    for flags in candidates:
        session.compile(flags=flags)
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.compiler import cache
from slipstream.compiler.assembler import FOLDER_FLAG, has_own_kernels, stand_in
from slipstream.compiler.closing import Closing
from slipstream.compiler.compilation import MEMORY_LIMIT, Compilation, MemoryUse
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.memory_pool import VARIABLES, XLA_SHARE
from slipstream.compiler.messages import CompilerMessage, naming_costs, parse_messages
from slipstream.compiler.options import Flags, SplitFlags, split_flags, tpu_flags
from slipstream.compiler.recomputed import TRITON, may_recompute, note, recomputed_products
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target
from slipstream.compiler.versions import installed_versions
from slipstream.compiler.workers import Answered, Job, Progress, Workers
from slipstream.costs.files import read_costs
from slipstream.costs.table import CostTable
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.machines.machine import Machine
from slipstream.reading import DAMAGE, object_or_none
from slipstream.remote.paths import any_path, local_copy
from slipstream.units import format_bytes

Costs = CostTable | str | os.PathLike[str] | None
_COSTS_FLAG = "xla_gpu_pgle_profile_file_or_directory_path"
_AUTOTUNING_FLAG = "xla_gpu_load_autotune_results_from"
_KERNELS_FLAG = "xla_gpu_kernel_cache_file"
_OPTIMIZATION_FLAG = "xla_backend_optimization_level"
_DEVICE_MEMORY = re.compile(r"\bdevice_memory_size: (\d+)")


@dataclass(frozen=True)
class _Module:
    """The target as a StableHLO file, and how to compile it."""

    path: Path
    request: Mapping[str, Any]
    options: Mapping[str, str]
    log: str
    seconds: float


Sequences = Mapping[str, Sequence[str]]
"""an order: names of instructions by computation"""


@dataclass(frozen=True)
class _Pass:
    """What our pass behind XLA's scheduler is to do: set an order, or show the schedule."""

    order: Sequences | None

    @property
    def content(self) -> list[Any]:
        """For the cache's key."""
        if self.order is None:
            return ["scheduled"]
        return ["order", {name: list(one) for name, one in self.order.items()}]

    def request(self, folder: Path) -> dict[str, Any]:
        if self.order is None:
            return {"scheduled": str(folder / "scheduled.pb")}
        path = folder / "order.json"
        cache.write_json(path, {name: list(one) for name, one in self.order.items()})
        return {"sequences": str(path)}


class CompilerSession(Closing):
    """Compiles one target for one machine, with any flags and costs."""

    def __init__(
        self,
        target: Target,
        machine: Machine,
        target_config: str,
        *,
        autotuning: str | os.PathLike[str] | None = None,
        use_gpu: bool = False,
        progress: Progress | None = None,
        program_only: bool = False,
        reads_cache: bool = True,
        workers: Workers | None = None,
    ) -> None:
        """`program_only`: nobody runs what is compiled, so its machine code is left out.

        Without `reads_cache` everything is compiled anew, such as to time it.
        """
        self.target = target
        self.machine = machine
        self.versions = installed_versions(machine.kind)
        self._config = target_config
        self._autotuning = _existing(autotuning) if autotuning else None
        self._use_gpu = use_gpu
        self._progress = progress or (lambda text: None)
        self._folder = tempfile.TemporaryDirectory(prefix="slipstream-compile-")
        self._has_own_workers = workers is None
        self._workers = workers or Workers(use_gpu=use_gpu, progress=progress)
        self._module: _Module | None = None
        self._given_costs: dict[Path, str] = {}
        self._program_only = program_only and not use_gpu
        self._reads_cache = reads_cache

    def compile(
        self, flags: Flags = None, costs: Costs = None, order: Sequences | None = None
    ) -> Compilation:
        """The program with these flags and costs, from the cache if possible.

        With an `order`, its instructions run in that one; `CompileFailed` if XLA doesn't take it.
        """
        options = self._split(flags)
        costs_path = self._costs_path(costs)
        if order is not None:
            return self._found_or_compiled(options, costs_path, _Pass(order))
        found = self._found_or_compiled(options, costs_path)
        if not self._may_autotune_differ(options) or not may_recompute(found.proto.read_bytes()):
            return found
        products = recomputed_products(found.program)
        if not products:
            return found
        cublas = replace(options, compiler_options={**options.compiler_options, TRITON: "False"})
        other = self._found_or_compiled(cublas, costs_path)
        return replace(
            other,
            logged=(note(products), *other.logged),
            seconds=found.seconds + other.seconds,
            is_cached=found.is_cached and other.is_cached,
        )

    def scheduled(self, flags: Flags = None, costs: Costs = None) -> Compilation:
        """The program as XLA's scheduler leaves it: what an order can still change.

        Later passes make collectives synchronous that nothing overlaps. Memory is that of the whole
        compile. Needs JAX 0.11.
        """
        return self._found_or_compiled(self._split(flags), self._costs_path(costs), _Pass(None))

    def _may_autotune_differ(self, options: SplitFlags) -> bool:
        """Whether a GPU could choose other kernels for products than this compile."""
        is_given = self._use_gpu or self._autotuning is not None or TRITON in options.all
        return self.machine.kind == "gpu" and not is_given

    def _found_or_compiled(
        self, options: SplitFlags, costs: Path | None, ours: _Pass | None = None
    ) -> Compilation:
        found = cache.find(self._key(options, costs, ours)) if self._reads_cache else None
        if found is not None:
            with suppress(*DAMAGE):  # not what `keep` wrote: compile again
                return self._compilation(found, costs, is_cached=True)
        return self._compilation(self._compiled(options, costs, ours), costs, is_cached=False)

    def portable_target(self) -> Target:
        """The target in a form that can be stored and compiled elsewhere: Python is lowered."""
        if self.target.kind != "python":
            return self.target
        module = self._lowered(SplitFlags())
        content, order = module.path.read_bytes(), tuple(module.request["order"])
        label = self.target.label
        return Target(
            "stablehlo",
            label,
            content,
            devices=order,
            options=module.options,
            memory_share=self.target.memory_share,
        )

    def abort(self) -> None:
        """Abort a compile that another thread waits for, which then fails there."""
        self._workers.abort()

    def close(self) -> None:
        if self._has_own_workers:
            self._workers.close()
        self._folder.cleanup()

    def _split(self, flags: Flags) -> SplitFlags:
        return tpu_flags(flags) if self.machine.kind == "tpu" else split_flags(flags)

    # Cache keys.

    def _key(self, options: SplitFlags, costs: Path | None, ours: _Pass | None = None) -> str:
        return cache.digest(
            *((ours.content,) if ours is not None else ()),
            self._target_state(),
            self.machine.topology,
            self._config,
            self._pool_bytes,
            self._use_gpu,
            options.all,
            _content(costs),
            _content(self._autotuning),
            self.versions,
        )

    def _target_state(self) -> Any:
        if self.target.kind != "python":
            content = cache.digest(self.target.content)
            variables = TargetInputs().state()["variables"]
            return [content, list(self.target.devices), dict(self.target.options), variables]
        known = object_or_none(self._inputs_file)
        inputs = TargetInputs.from_json(known) if known else TargetInputs()
        return [self._identity, inputs.state()]

    @property
    def _identity(self) -> list[Any]:
        """A Python target without its contents, to look up the files that it reads."""
        module = self.target.module
        place = os.path.abspath(module) if module.endswith(".py") else [os.getcwd(), module]
        return [place, self.target.function, dict(self.target.keywords)]

    @property
    def _inputs_file(self) -> Path:
        name = cache.digest(self._identity, self.versions, self.machine.topology)
        return cache.cache_folder() / f"{name}.inputs.json"

    def _costs_path(self, costs: Costs) -> Path | None:
        if costs is None:
            return None
        if self.machine.kind == "tpu":
            raise BadInput(
                f"XLA:TPU takes no costs, and {self.machine.spec} has TPUs; omit them, or "
                "compile for GPUs"
            )
        if isinstance(costs, CostTable):
            path = Path(self._folder.name) / "costs.pb"
            costs.write(path)
            # XLA may cache files by name, so each content gets its own name.
            named = path.with_name(f"{_content(path)}.pb")
            path.replace(named)
            return named
        path = _existing(costs)
        read_costs(path)
        self._given_costs[path] = str(costs)
        return path

    # Compiling.

    def _compiled(
        self, options: SplitFlags, costs: Path | None, ours: _Pass | None = None
    ) -> dict[str, Any]:
        module = self._lowered(options)
        self._progress(f"compiling for {self.machine.spec}")
        out = Path(self._folder.name) / "program.pb"
        given = self._compiler_options(module, options, costs)
        request = {**module.request, "options": given, "use_gpu": self._use_gpu}
        if self._pool_bytes is not None:
            request["memory_pool"] = self._pool_bytes
        if ours is not None:
            request |= ours.request(Path(self._folder.name))
        paths = {"path": str(module.path), "out": str(out)}
        answer, log = self._workers.ask(self._job(options), "compile", **paths, **request)
        if answer.get("problem"):
            raise CompileFailed(f"XLA did not take the order: {answer['problem']}", "refused")
        entry = {
            "memory": answer["memory"],
            "devices": answer["devices"],
            "seconds": round(module.seconds + answer["seconds"], 3),
            "flags": {**module.options, **options.all},
        }
        # The key includes what the target reads, which is known only now.
        log = module.log + log
        if ours is None or ours.order is not None:
            return cache.keep(self._key(options, costs, ours), entry, out.read_bytes(), log)
        # The same compile made the whole program, too.
        cache.keep(self._key(options, costs), entry, out.read_bytes(), log)
        scheduled = Path(self._folder.name) / "scheduled.pb"
        return cache.keep(self._key(options, costs, ours), entry, scheduled.read_bytes(), log)

    def _compiler_options(
        self, module: _Module, options: SplitFlags, costs: Path | None
    ) -> dict[str, str]:
        given = {**module.options, **options.compiler_options}
        if self.machine.kind == "tpu":
            return given
        if costs is not None:
            given[_COSTS_FLAG] = str(costs)
        if self._use_gpu:
            # Sharded autotuning would wait for processes on other hosts, which don't exist.
            given.setdefault("xla_gpu_shard_autotuning", "False")
        if self._program_only:
            given |= self._without_machine_code(module, given)
        return given

    def _without_machine_code(self, module: _Module, given: Mapping[str, str]) -> dict[str, str]:
        """Options that leave out most of a compile; the program, and so the key, is the same."""
        own = {}
        if _KERNELS_FLAG in installed_catalogue().flags:
            # Candidates share most kernels, so compile each only once.
            own[_KERNELS_FLAG] = str(self._workers.kernels)
        if not has_own_kernels(module.path.read_bytes()):
            own[_OPTIMIZATION_FLAG] = given.get(_OPTIMIZATION_FLAG, "0")
            if (tools := stand_in(self._workers.tools, self.versions)) is not None:
                own[FOLDER_FLAG] = given.get(FOLDER_FLAG, str(tools))
        return own

    def _job(self, flags: SplitFlags) -> Job:
        text = flags.text
        if self._autotuning is not None:
            text = f"{text} --{_AUTOTUNING_FLAG}={self._autotuning}".strip()
        return Job(self.target, self.machine, self._config, text)

    def _lowered(self, options: SplitFlags) -> _Module:
        if self._module is not None:
            return self._module
        began = time.monotonic()
        path = Path(self._folder.name) / "program.mlir"
        request: dict[str, Any] = {"order": list(self.target.devices)}
        own: Mapping[str, str] = self.target.options
        log = ""
        if self.target.kind == "python":
            answer, log = self._lower_python(options, path)
            request, own = {"order": answer["devices"]}, answer["options"]
        elif self.target.kind == "hlo":
            request, log = self._convert(options, path)
        else:
            path.write_bytes(self.target.content)
        own = self._split(own).compiler_options
        self._module = _Module(path, request, own, log, time.monotonic() - began)
        return self._module

    def _lower_python(self, options: SplitFlags, path: Path) -> Answered:
        self._progress(f"lowering {self.target.label}")
        answer, log = self._workers.ask_python(self._job(options), "lower", out=str(path))
        cache.write_json(self._inputs_file, answer["inputs"])
        return answer, log

    def _convert(self, options: SplitFlags, path: Path) -> Answered:
        self._progress(f"converting {self.target.label}")
        source = path.with_suffix(".hlo")
        source.write_bytes(self.target.content)
        return self._workers.ask(self._job(options), "convert", path=str(source), out=str(path))

    # Results.

    def _compilation(
        self, entry: Mapping[str, Any], costs: Path | None, *, is_cached: bool
    ) -> Compilation:
        memory = MemoryUse(**entry["memory"], capacity_bytes=self._capacity)
        log = entry["log"].read_text(encoding="utf-8", errors="replace")
        own = _own_messages(
            self.machine, memory, entry["devices"], entry["flags"], self._pool_bytes
        )
        messages = parse_messages(log)
        if costs is not None and costs in self._given_costs:
            messages = naming_costs(messages, self._given_costs[costs], costs.is_dir())
        return Compilation(
            proto=entry["proto"],
            log=entry["log"],
            logged=(*own, *messages),
            memory=memory,
            seconds=entry["seconds"],
            is_cached=is_cached,
            machine=self.machine,
            target=self.target.label,
            versions=self.versions,
            flags=entry["flags"],
            devices=entry["devices"],
        )

    @property
    def _capacity(self) -> int:
        """The memory of a device; the target configuration may be more exact than the machine."""
        stated = _DEVICE_MEMORY.search(self._config)
        return int(stated[1]) if stated else self.machine.chip.memory_bytes

    @property
    def _pool_bytes(self) -> int | None:
        """What XLA is told that it may plan with; None if it is to decide."""
        share = self.target.memory_share
        if self.machine.kind != "gpu" or share is None:
            return None
        return int(share * self._capacity)


NEAR_LIMIT = 0.95
"""share of the scheduler's limit from which on the schedule may change a lot with little"""
_SLOP_FACTOR = "xla_gpu_memory_limit_slop_factor"


def _own_messages(
    machine: Machine,
    memory: MemoryUse,
    devices: int,
    set_flags: Mapping[str, str],
    pool_bytes: int | None = None,
) -> list[CompilerMessage]:
    found = []
    gpu = machine.chip.name
    pool = pool_bytes or XLA_SHARE * memory.capacity_bytes
    planned = memory.planned_bytes(pool, int(set_flags.get(_SLOP_FACTOR, 95)))
    has_limit = machine.kind == "gpu"
    if has_limit and memory.fits and memory.temporaries_bytes > NEAR_LIMIT * planned:
        text = (
            f"temporaries of {format_bytes(memory.temporaries_bytes)} are at the limit of XLA's "
            f"scheduler, {format_bytes(round(planned))}: a little more, in another version or with "
            "other shapes, and it recomputes or overlaps less"
        )
        found.append(CompilerMessage(MEMORY_LIMIT, text, "warning"))
    if not memory.fits:
        needs, has = format_bytes(memory.peak_bytes), format_bytes(memory.capacity_bytes)
        text = (
            f"needs {needs} of {has} on each {gpu}: reduce the batch size, checkpoint more layers, "
            "or shard over more devices"
        )
        found.append(CompilerMessage("memory-does-not-fit", text, "error"))
    elif pool_bytes is not None and memory.peak_bytes > pool_bytes:
        needs, has = format_bytes(memory.peak_bytes), format_bytes(memory.capacity_bytes)
        text = (
            f"needs {needs} of {has}, and JAX's allocator takes {format_bytes(pool_bytes)}: the "
            f"job would run out of memory; export {VARIABLES[0]}=.95, here and in the job"
        )
        found.append(CompilerMessage("memory-pool", text, "warning"))
    if devices < machine.devices:
        text = (
            f"the program runs on {devices} of the {machine.devices} devices of {machine.spec}: "
            "its shardings use no more"
        )
        found.append(CompilerMessage("few-devices", text, "warning"))
    variables = ["XLA_FLAGS", *(["LIBTPU_INIT_ARGS"] if machine.kind == "tpu" else [])]
    for name in variables:
        if flags := os.environ.get(name):
            text = f"{name} is also applied: {flags}"
            found.append(CompilerMessage("environment", text, "info"))
    return found


def _existing(path: str | os.PathLike[str]) -> Path:
    found = local_copy(any_path(path)).absolute()
    if not found.exists():
        raise BadInput(f"{path} does not exist; check the path, or omit the option")
    return found


def _content(path: Path | None) -> str | None:
    """A hash of a file or folder, for a key."""
    if path is None:
        return None
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    parts: list[object] = []
    with suppress(OSError):
        parts = [part for one in files for part in (one.suffix, one.read_bytes())]
    return cache.digest(*parts)
