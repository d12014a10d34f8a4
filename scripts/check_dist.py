"""Install wheels and sdists into empty environments, one for each Python, and use them there.

    python scripts/check_dist.py dist/slipstream-0.1.0-py3-none-any.whl --python 3.11 --python 3.13

Pythons are looked for on the PATH and under pyenv. One that is not there is an error, unless
`--where-found` is given; none at all always is. An sdist is built by the first one only: what it
makes is the same wheel for all. As many Pythons are busy at a time as there are cores. Run by
`make test-dist`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "data" / "off_default.xplane.pb.gz"
IMPORTS = """
import importlib, pkgutil, sys
import slipstream
from slipstream.errors import Missing

assert "jax" not in sys.modules
for name in slipstream.__all__:
    getattr(slipstream, name)
names = [one.name for one in pkgutil.walk_packages(slipstream.__path__, "slipstream.")]
# What runs only inside a job, or as a command.
left = ("slipstream.run.site.", "slipstream.__main__", "slipstream.native.warmup")
for name in names:
    if not name.startswith(left):
        try:
            importlib.import_module(name)
        except Missing:
            pass  # it says which library to install
        except ModuleNotFoundError as error:
            assert not (error.name or "").startswith("slipstream"), f"{name}: {error}"
print(len(names), "modules")
"""
"""every module is imported; one that an extra brings may be missing, one of ours may not"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", type=Path, nargs="+", help="wheels or sdists", metavar="FILE")
    parser.add_argument("--python", action="append", required=True, metavar="VERSION")
    parser.add_argument("--where-found", action="store_true", help="leave out missing Pythons")
    options = parser.parse_args()
    found = {version: find_python(version) for version in options.python}
    for version, python in found.items():
        if python is None:
            print(f"Python {version}: not on this machine")
    there = {version: python for version, python in found.items() if python is not None}
    if not there or (len(there) < len(found) and not options.where_found):
        return 1
    wheels = [one.resolve() for one in options.packages if one.suffix == ".whl"]
    others = [one.resolve() for one in options.packages if one.suffix != ".whl"]
    with ThreadPoolExecutor(os.cpu_count()) as busy:
        checks = []
        for version, python in there.items():
            checks.append(busy.submit(check, version, python, [*wheels, *others]))
            others = []
        for one in checks:
            one.result()
    return 0


def check(version: str, python: str, packages: list[Path]) -> None:
    """Every package in an environment of its own; they share compiled native code."""
    with tempfile.TemporaryDirectory() as folder:
        for number, package in enumerate(packages):
            began = time.monotonic()
            said = used(python, package, Path(folder), Path(folder, f"env{number}"))
            took = f"{time.monotonic() - began:.0f} s"
            print(f"Python {version}: {package.name}: {said} · {took}", flush=True)


def find_python(version: str) -> str | None:
    """A Python of this version that runs; a pyenv shim may exist for one that doesn't."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for candidate in (f"python{version}", *map(str, pyenv.glob(f"{version}*/bin/python"))):
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run([candidate, "-c", asked], capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


def used(python: str, package: Path, folder: Path, env: Path) -> str:
    """Install the package and what it needs; one line of what it printed."""
    # Installed by the pip that runs this script: to give each one its own takes as long again.
    call([python, "-m", "venv", "--without-pip", str(env)], folder)
    bin_ = env / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(bin_ / "python")]
    options = ["-q", "--disable-pip-version-check", "--no-compile"]
    call([*pip, "install", *options, str(package)], folder)
    version = call([str(bin_ / "slipstream"), "--version"], folder).strip()
    modules = call([str(bin_ / "python"), "-c", IMPORTS], folder).strip()
    shown = call([str(bin_ / "slipstream"), "summary", str(RECORDING)], folder)
    if "step 461 ms" not in shown:
        raise SystemExit(f"slipstream summary {RECORDING.name} printed:\n{shown}")
    return f"{version} · {modules} · summary has its step"


def call(command: list[str], folder: Path) -> str:
    """What a command prints; it runs where no source tree can be imported by chance."""
    kept = ("PIP_", "HOME", "PATH", "LANG", "http", "HTTP", "SSL_", "REQUESTS_")
    env = {name: value for name, value in os.environ.items() if name.startswith(kept)}
    env |= {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "80"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
