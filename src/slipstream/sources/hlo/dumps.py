"""Programs that XLA dumped during a run (`--xla_dump_to`), for profiles without programs.

module_0040.jit_step.sm_9.0_gpu_after_optimizations.hlo.pb     (.txt; .gz and .xz too)
       │    └ the program's name
       └ its id: what NVTX ranges call `program_id`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.profile.attribution.kernels import sanitized
from slipstream.profile.profile import ProfileWarning, Programs
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import read_program

_DUMPED = re.compile(
    r"(?:^|.*[/.])module_(\d+)\.(.+?)\.(?:[^/]*?)after_optimizations"
    r"\.(hlo\.pb|hlo|txt|pb)(?:\.(?:gz|xz))?$"
)
_PLAIN = re.compile(r"\.(hlo|hlo\.pb|hlo\.txt)(\.gz|\.xz)?$")
MOST_PLAIN = 64
"""files without an id in their name to read at most, as only their content tells the program"""

Reader = Callable[[], Program]


@dataclass(frozen=True)
class Dump:
    """One dumped program: what its file name tells, and how to read it."""

    number: int | None
    name: str
    is_proto: bool
    read: Reader


@dataclass(frozen=True)
class Dumps:
    """The dumped programs in a folder or archive."""

    found: tuple[Dump, ...] = ()
    source: str = ""
    by_id: Mapping[int, Dump] = field(default_factory=dict)

    @classmethod
    def of(cls, dumps: Iterable[Dump], source: str) -> Dumps:
        # A proto contains more than text, so it comes last and wins.
        ordered = tuple(sorted(dumps, key=lambda dump: dump.is_proto))
        return cls(ordered, source, {d.number: d for d in ordered if d.number is not None})

    def programs(self, names: Iterable[str]) -> tuple[Programs, tuple[ProfileWarning, ...]]:
        """Programs by `name(id)` for the names that a profile mentions, and warnings."""
        readers: dict[str, Reader] = {}
        by_name: list[str] = []
        for name in names:
            label, _, number = name.removesuffix(")").rpartition("(")
            wanted = int(number) if label else None
            dump = self._find(label or name, wanted)
            if dump is None:
                continue
            if dump.number != wanted:
                by_name.append(name)
            readers[name] = partial(_identified, dump.read, wanted)
        return Programs(readers), tuple(self._found_by_name(name) for name in by_name)

    def _find(self, name: str, number: int | None) -> Dump | None:
        known = self.by_id.get(number) if number is not None else None
        if known is not None and sanitized(known.name) == sanitized(name):
            return known
        same = [dump for dump in self.found if sanitized(dump.name) == sanitized(name)]
        distinct = {id(dump) if dump.number is None else dump.number for dump in same}
        return same[-1] if len(distinct) == 1 else None

    def _found_by_name(self, name: str) -> ProfileWarning:
        return ProfileWarning(
            "program-by-name",
            f"{self.source} has no program with the id of {name}, so one with its name is used; "
            "if that was compiled differently, kernels are attributed to wrong instructions",
        )


def _identified(read: Reader, number: int | None) -> Program:
    return replace(read(), program_id=number)


def dump_of(name: str, read: Reader) -> Dump | None:
    """A dump by its file name; None if the name is not that of an optimised program."""
    found = _DUMPED.match(name)
    if found is None:
        return None
    return Dump(int(found.group(1)), found.group(2), "pb" in found.group(3), read)


def dumps_in(folder: Path) -> Dumps:
    """Programs that XLA dumped to a folder, at any depth."""
    if not folder.is_dir():
        raise BadInput(
            f"{folder} is not a folder of dumped programs; create one by running with "
            "XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto'"
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    found = [dump for path in files if (dump := dump_of(path.name, partial(read_program, path)))]
    plain = [p for p in files if _PLAIN.search(p.name) and not p.name.startswith("module_")]
    return Dumps.of(found + [_plain(path) for path in plain[:MOST_PLAIN]], str(folder))


def dumps_beside(file: Path) -> Dumps:
    """Programs dumped to the folder of a recording or to its subfolders."""
    files = [*file.parent.glob("module_*"), *file.parent.glob("*/module_*")]
    dumps = (dump_of(path.name, partial(read_program, path)) for path in sorted(files))
    return Dumps.of([dump for dump in dumps if dump], str(file.parent))


def _plain(path: Path) -> Dump:
    program = read_program(path)
    return Dump(program.program_id, program.name, "pb" in path.name, lambda: program)
