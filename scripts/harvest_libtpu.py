"""Writes src/slipstream/flags/catalogue/libtpu.json.gz: the flags of libtpu releases.

    python scripts/harvest_libtpu.py                    for every supported jax that is missing
    python scripts/harvest_libtpu.py 0.10.2 0.12.0.1    for these releases of jax, again

For each release, `jax[tpu]` is installed in an environment of its own. Names, types and defaults
are read from libtpu's memory (`libtpu_registry.py`). Every flag is then a compile option of a small
program for a TPU, to see which of them are options too. And what `LibtpuFlag.accepts` says of many
values of every flag is compared with the library's own parser.  No TPU is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from harvest_flags import HarvestError, interpreter, run

from slipstream.flags.catalogue.libtpu import DATA, LibtpuCatalogue, decode, encode
from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag
from slipstream.flags.catalogue.libtpu_registry import FlagObject, flag_objects, read_registry
from slipstream.writing import atomic_write

RELEASES = ("0.10.2", "0.11.2", "0.12.0.1")
"""the supported releases of jax"""
PYTHONS = ("3.12", "3.11", "3.13")
VALUES = (
    *(
        "true",
        "TRUE",
        "t",
        "yes",
        "Y",
        "1",
        "on",
        "ture",
        "false",
        "no",
        "0",
        "off",
        "2",
        "",
        "auto",
    ),
    *(
        "AUTO",
        "enabled",
        "ENABLED",
        "disabled",
        "-1",
        "+1",
        "007",
        "1.5",
        "-.5",
        "1e3",
        "1e",
        "0x10",
    ),
    *("inf", "nan", "3s", "1h30m", "3", "10 s", "2147483647", "2147483648", "-2147483649", "65536"),
    *(
        "4294967295",
        "4294967296",
        "9223372036854775808",
        "18446744073709551616",
        "qzx",
        "a,b",
        " 1",
    ),
)
_OPTIONS = """
import json, sys
import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

device = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
shape = jax.ShapeDtypeStruct((8,), "float32", sharding=SingleDeviceSharding(device))
lowered = jax.jit(lambda x: x + 1).trace(shape).lower(lowering_platforms=("tpu",))

def is_option(name, value):
    try:
        lowered.compile(compiler_options={name: value})
    except Exception as error:
        return "No such compile option" not in str(error)
    return True

flags = json.load(sys.stdin)
print(json.dumps([name for name, value in flags.items() if is_option(name, value)]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("releases", nargs="*", help="releases of jax (default: all missing)")
    wanted = parser.parse_args().releases
    catalogues = decode(DATA.read_bytes()) if DATA.exists() else {}
    there = {catalogue.jaxlib_version for catalogue in catalogues.values()}
    for release in wanted or [one for one in RELEASES if one not in there]:
        found = read_release(release)
        catalogues[found.version] = found
        with atomic_write(DATA) as path:
            path.write_bytes(encode(catalogues))
        options = sum(flag.in_compiler_options for flag in found.flags.values())
        print(
            f"jax {release}, libtpu {found.version}: {len(found.flags)} flags, {options} of them "
            f"compile options; {DATA.name} has {DATA.stat().st_size} bytes",
            flush=True,
        )
    return 0


class _Raw(argparse.RawDescriptionHelpFormatter):
    pass


def read_release(release: str) -> LibtpuCatalogue:
    """Installs a release, reads its flags and checks them, and leaves nothing behind."""
    with tempfile.TemporaryDirectory() as folder:
        python = environment(release, Path(folder))
        (library,) = Path(folder).glob("lib/python*/site-packages/libtpu/libtpu.so")
        version = run(
            str(python), "-c", "import importlib.metadata as m; print(m.version('libtpu'))"
        )
        flags = read_registry(library)
        with get_context("spawn").Pool(1) as pool:
            wrong = pool.apply(disagreements, (library,))
        if wrong:
            raise HarvestError(f"libtpu and LibtpuFlag.accepts disagree: {wrong[:10]}")
        options = compile_options(python, flags)
    found = {flag.name: replace(flag, in_compiler_options=flag.name in options) for flag in flags}
    return LibtpuCatalogue(version.strip(), release, dict(sorted(found.items())))


def environment(release: str, folder: Path) -> Path:
    """A Python with `jax[tpu]`, of the first version for which there are wheels."""
    problems = []
    for version in PYTHONS:
        command = interpreter(version)
        if command is None:
            continue
        run(command, "-m", "venv", "--clear", str(folder))
        python = folder / "bin" / "python"
        try:
            run(str(python), "-m", "pip", "install", "--quiet", f"jax[tpu]=={release}")
        except HarvestError as error:
            problems.append(str(error))
            continue
        return python
    raise HarvestError(" | ".join(problems))


def compile_options(python: Path, flags: list[LibtpuFlag]) -> frozenset[str]:
    """The flags that a compile for a TPU takes as options."""
    done = subprocess.run(
        [str(python), "-c", _OPTIONS],
        input=json.dumps({flag.name: flag.default for flag in flags}),
        env=os.environ | {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise HarvestError(done.stderr[-500:])
    return frozenset(json.loads(done.stdout.splitlines()[-1]))


def disagreements(library: Path) -> list[tuple[str, str]]:
    """Flags and values of which `LibtpuFlag.accepts` doesn't say what the library does."""
    from slipstream.flags.catalogue.libtpu_registry import described

    wrong = []
    for flag in flag_objects(library):
        known = described(flag)
        if known.kind not in ("message", "other"):
            tried = {*VALUES, *spellings(known)}
            wrong += [(known.name, one) for one in tried if known.accepts(one) != takes(flag, one)]
    return sorted(wrong)


def takes(flag: FlagObject, value: str) -> bool:
    return flag.parsed(value)[0] is not None


def spellings(flag: LibtpuFlag) -> Iterator[str]:
    for word in flag.words:
        yield from (word, word.upper(), word.lower(), word.title(), word[:-1])
        yield re.sub("_", "-", word)


if __name__ == "__main__":
    sys.exit(main())
