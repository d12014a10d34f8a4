"""Write the lock files in requirements/: every package of an environment, with hashes.

    core.txt      what Slipstream itself needs            make install
    demo.txt      with XLA's compiler                     make demo
    test.txt      with all that the tests and checks need make test, make check
    lowest.txt    the lowest versions that pyproject.toml allows, and pytest    make test-lowest
    stacks-*.txt  trainers and trackers of tests/stacks/requirements-*.txt      make test-stacks

Run by `make lock`, which needs uv and the network. Each file is for all supported Pythons. It has
the hashes of every file of a release, so it works on any platform, and names no package index.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
OLDEST_PYTHON = "3.11"
TESTING = ("pytest", "pytest-rerunfailures", "pytest-xdist", "hypothesis")
"""what the core selection of tests needs besides Slipstream"""
STACKS = ROOT / "tests" / "stacks"
STACK_TESTING = ("pytest", "pytest-rerunfailures", "hypothesis")
HEADER = "# Written by `make lock`; see scripts/lock.py.\n"


def lowest(requirement: str) -> str:
    """`numpy>=1.26` as `numpy==1.26`: the lowest version that it allows."""
    matched = re.match(r"([A-Za-z0-9._-]+)>=([0-9.]+)", requirement)
    if matched is None:
        raise SystemExit(f"pyproject.toml has {requirement!r}; expected NAME>=VERSION")
    return f"{matched[1]}=={matched[2]}"


def compiled(name: str, *arguments: str) -> None:
    """Let uv resolve requirements into a lock file; versions of an existing file are kept."""
    target = LOCKS / f"{name}.txt"
    command = ["uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
    command += ["--no-header", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--output-file", str(target), *arguments]
    subprocess.run(command, cwd=ROOT, check=True)
    target.write_text(HEADER + target.read_text().removeprefix(HEADER))


def oldest_python(pinned: Path) -> str:
    """`3.12` of a file that begins with `# Python 3.12: …`."""
    matched = re.match(r"# Python (3\.\d+):", pinned.read_text())
    if matched is None:
        raise SystemExit(f"{pinned.name} doesn't begin with '# Python 3.…:'")
    return matched[1]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    LOCKS.mkdir(exist_ok=True)
    everywhere = ("--universal", "--python-version", OLDEST_PYTHON)
    own = ("pyproject.toml", "--extra", "editable", *everywhere)
    same = ("--constraint", str(LOCKS / "test.txt"))
    compiled("test", *own, "--extra", "test")
    compiled("demo", *own, "--extra", "demo", *same)
    compiled("core", *own, *same)
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "wanted.in")
        pins = [lowest(requirement) for requirement in project["dependencies"]]
        editable = project["optional-dependencies"]["editable"]
        wanted.write_text("\n".join([*pins, *editable, *TESTING]) + "\n")
        compiled("lowest", str(wanted), "--python-version", OLDEST_PYTHON, "--python-platform",
                 "x86_64-manylinux_2_28")  # fmt: skip
        wanted.write_text("\n".join(STACK_TESTING) + "\n")
        for pinned in sorted(STACKS.glob("requirements-*.txt")):
            compiled(pinned.stem.replace("requirements", "stacks"), str(pinned), str(wanted),
                     "pyproject.toml", "--extra", "editable", "--universal",
                     "--python-version", oldest_python(pinned))  # fmt: skip


if __name__ == "__main__":
    main()
