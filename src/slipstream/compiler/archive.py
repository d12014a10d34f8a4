"""Programs in nsys-jax archives, to be recompiled: HLO, target configuration, autotuning.

dump/module_0040.pjit_step.before_optimizations.hlo.pb.xz
dump/module_0040.pjit_step.gpu_target_config.pbtxt.xz
dump/module_0040.pjit_step.autotune_results.pbtxt.xz
"""

from __future__ import annotations

import io
import lzma
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from slipstream.compiler.cache import cache_folder, digest
from slipstream.compiler.targets import Target
from slipstream.errors import BadInput
from slipstream.reading import damage, open_ranges, too_large, unpack, unpacked_limit
from slipstream.writing import atomic_write

_BEFORE = re.compile(
    r"^(?P<stem>.*module_\d+\.(?P<name>.+?))\.before_optimizations\.(hlo\.pb|txt)(\.xz|\.gz)?$"
)


@dataclass(frozen=True)
class ArchivedProgram:
    """One program of an archive, with its target configuration and autotuning results."""

    target: Target
    target_config: str | None
    autotuning: Path | None


def read_archived(path: str | Path, name: str | None = None) -> ArchivedProgram:
    """The largest program of an archive, or the one called `name`."""
    is_archive = damage(path, "an nsys-jax archive", (zipfile.BadZipFile, lzma.LZMAError))
    with (
        open_ranges(path, "an nsys-jax archive") as file,
        is_archive,
        zipfile.ZipFile(file) as archive,
    ):
        archive.filename = str(path)  # for errors: all that the zip file knows is a descriptor
        member = _choose(archive, Path(path), name)
        match = _BEFORE.match(member)
        assert match is not None
        content = _member(archive, member)
        config = _beside(archive, match["stem"], "gpu_target_config")
        results = _beside(archive, match["stem"], "autotune_results")
    target = Target("hlo", f"{match['name']} of {Path(path).name}", content)
    return ArchivedProgram(target, config, _kept(results) if results else None)


def _choose(archive: zipfile.ZipFile, path: Path, name: str | None) -> str:
    found = {m["name"]: i for i in archive.infolist() if (m := _BEFORE.match(i.filename))}
    if not found:
        raise BadInput(
            f"{path} has no unoptimised program; expected an nsys-jax archive "
            "recorded with XLA_FLAGS=--xla_dump_hlo_as_proto"
        )
    if name is None:
        return max(found.values(), key=lambda info: info.file_size).filename
    if name not in found:
        raise BadInput(f"{path} has no program {name}; it has {', '.join(sorted(found))}")
    return found[name].filename


def _beside(archive: zipfile.ZipFile, stem: str, what: str) -> str | None:
    for ending in (".xz", ".gz", ""):
        file = f"{stem}.{what}.pbtxt{ending}"
        if file in archive.namelist():
            return _member(archive, file).decode()
    return None


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    info, source = archive.getinfo(name), f"{archive.filename}, {name}"
    # No more is unpacked than the size that the archive states.
    if info.file_size > (limit := unpacked_limit(info.compress_size)):
        raise too_large(source, info.compress_size, limit)
    data = archive.read(name)
    return unpack(io.BytesIO(data), source) if name.endswith((".xz", ".gz")) else data


def _kept(results: str) -> Path:
    """Write autotuning results to a file for XLA; `.pbtxt` marks them as text."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{digest(results)}.autotune.pbtxt"
    with atomic_write(file) as temporary:
        temporary.write_text(results, encoding="utf-8")
    return file
