"""Writes src/slipstream/flags/catalogue/history.json.gz: the flags of every jaxlib release.

    python scripts/harvest_flags.py                     every release from 0.4.18 on that is missing
    python scripts/harvest_flags.py 0.6.0 0.10.2        these releases, again if they are there
    python scripts/harvest_flags.py --list              what is there and what is not

For each release: one wheel is downloaded, its descriptor read, and its library started under a
Python that it was built for, to hear what `XLA_FLAGS` accepts and what the defaults are.  The
data file is written after each release, so that a run may be stopped and started again.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from slipstream.errors import SlipstreamError
from slipstream.flags.catalogue.catalogue import Catalogue
from slipstream.flags.catalogue.history import DATA, decode, encode, version_key
from slipstream.flags.catalogue.installed import read_catalogue
from slipstream.flags.catalogue.jaxlib_library import library_in
from slipstream.flags.catalogue.probe import Probe
from slipstream.writing import atomic_write

OLDEST = "0.4.18"
PYTHONS = ("3.11", "3.12", "3.13", "3.10", "3.9")
"""in the order of preference"""
REQUIREMENTS = (
    ("numpy<2", "scipy<1.13", "ml_dtypes<0.4"),
    ("numpy<2.3", "scipy<1.16", "ml_dtypes>=0.5"),
)
"""what jaxlib imports: NumPy 1 for wheels built before NumPy 2"""
FIRST_WITH_NUMPY_2 = "0.4.31"


class HarvestError(Exception):
    """One release that could not be read; the others go on."""


@dataclass(frozen=True)
class Release:
    """A version, and a Python for which it has a wheel."""

    version: str
    python: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Raw)
    parser.add_argument("versions", nargs="*", help="releases to read (default: all missing)")
    parser.add_argument("--list", action="store_true", help="say what is there, read nothing")
    parser.add_argument("--environments", type=Path, help="keep the virtual environments here")
    arguments = parser.parse_args()
    catalogues = decode(DATA.read_bytes()) if DATA.exists() else {}
    releases = available()
    missing = [version for version in releases if version not in catalogues]
    if arguments.list:
        print("there:  ", *sorted(catalogues, key=version_key))
        print("missing:", *missing)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        place = arguments.environments or Path(scratch) / "environments"
        wanted = arguments.versions or missing
        return harvest([releases[version] for version in wanted], catalogues, place)


class _Raw(argparse.RawDescriptionHelpFormatter):
    pass


def harvest(releases: list[Release], catalogues: dict[str, Catalogue], place: Path) -> int:
    """Reads each release and writes the data file after it; returns the exit code."""
    failed = 0
    for number, release in enumerate(releases, 1):
        began = time.monotonic()
        mark = f"[{number}/{len(releases)}] jaxlib {release.version} (Python {release.python})"
        try:
            catalogue = read_release(release, place, names_of(catalogues))
        except (HarvestError, SlipstreamError) as error:
            print(f"{mark}: {error}", file=sys.stderr, flush=True)
            failed += 1
            continue
        catalogues[release.version] = catalogue
        with atomic_write(DATA) as path:
            path.write_bytes(encode(catalogues))
        accepted = sum(bool(flag.in_xla_flags) for flag in catalogue.flags.values())
        seconds = time.monotonic() - began
        print(
            f"{mark}: {len(catalogue.flags)} flags, {accepted} in XLA_FLAGS, {seconds:.0f} s",
            flush=True,
        )
    print(f"{DATA.name}: {len(catalogues)} releases, {DATA.stat().st_size} bytes")
    return int(failed > 0)


def names_of(catalogues: dict[str, Catalogue]) -> set[str]:
    """Every flag any release had: a library may still accept one that it has no field for."""
    return {name for catalogue in catalogues.values() for name in catalogue.flags}


def available() -> dict[str, Release]:
    """Releases from OLDEST on, oldest first, each with the best Python that has a wheel."""
    found: dict[str, Release] = {}
    for python in PYTHONS:
        if interpreter(python) is None:
            continue
        done = run(str(interpreter(python)), "-m", "pip", "index", "versions", "jaxlib")
        listed = re.search(r"Available versions: (.*)", done)
        for version in listed.group(1).split(", ") if listed else []:
            if version_key(version) >= version_key(OLDEST):
                found.setdefault(version, Release(version, python))
    return dict(sorted(found.items(), key=lambda item: version_key(item[0])))


def read_release(release: Release, place: Path, names: set[str]) -> Catalogue:
    """Downloads a wheel, reads and starts it, and leaves nothing behind."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        unpack(download(release, folder), folder)
        library = library_in(folder / "jaxlib", release.version)
        problems = []
        for requirements in orders(release.version):
            python = environment(release.python, requirements, place)
            try:
                return read_catalogue(library, Probe(str(python), (folder,)), names)
            except SlipstreamError as error:
                problems.append(str(error))
        raise HarvestError(" | ".join(problems))


def download(release: Release, folder: Path) -> Path:
    run(
        *(str(interpreter(release.python)), "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--only-binary", ":all:", "--python-version", release.python, "--implementation", "cp"),
        *("--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_27_x86_64"),
        *("--dest", str(folder), f"jaxlib=={release.version}"),
    )
    (wheel,) = folder.glob("jaxlib-*.whl")
    return wheel


def unpack(wheel: Path, folder: Path) -> None:
    """What `import jaxlib.xla_client` needs; GPU kernels and MLIR dialects stay packed."""
    with zipfile.ZipFile(wheel) as archive:
        wanted = [
            name
            for name in archive.namelist()
            if name.startswith("jaxlib/") and not name.startswith(("jaxlib/mlir/", "jaxlib/cuda/"))
        ]
        archive.extractall(folder, wanted)
    wheel.unlink()


def orders(version: str) -> tuple[tuple[str, ...], ...]:
    """The sets of requirements, the likelier one first."""
    is_new = version_key(version) >= version_key(FIRST_WITH_NUMPY_2)
    return REQUIREMENTS[::-1] if is_new else REQUIREMENTS


@cache
def environment(python: str, requirements: tuple[str, ...], place: Path) -> Path:
    """A Python with `requirements`, made once."""
    folder = place / f"{python}-{REQUIREMENTS.index(requirements)}"
    command = folder / "bin" / "python"
    if not (folder / "ready").exists():
        run(str(interpreter(python)), "-m", "venv", str(folder))
        wheels = ("--only-binary", ":all:")
        run(str(command), "-m", "pip", "install", "--quiet", *wheels, *requirements)
        (folder / "ready").touch()
    return command


@cache
def interpreter(python: str) -> str | None:
    """The command of a Python version, if it is there and starts."""
    command = shutil.which(f"python{python}")
    if command is None:
        return None
    done = subprocess.run(
        [command, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else None


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise HarvestError(" / ".join(done.stderr.strip().splitlines()[-3:]))
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
