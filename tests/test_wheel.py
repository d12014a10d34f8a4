"""What is installed is all there is: data, pages and the way into jobs come with the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from conftest import REPOSITORY

SOURCES = REPOSITORY / "src"
MADE = (".pyc", ".nbc", ".nbi")
"""ends of what Python and Numba leave beside the sources"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(REPOSITORY)).build(directory=str(folder), versions=["standard"])
    return Path(built)


def in_tree():
    files = (file for file in (SOURCES / "slipstream").rglob("*") if file.is_file())
    names = (file.relative_to(SOURCES).as_posix() for file in files)
    return {name for name in names if "__pycache__" not in name and not name.endswith(MADE)}


def test_the_wheel_holds_every_file_of_the_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert package == in_tree()
    # Those that nothing imports, so that nothing else would notice.
    assert "slipstream/run/site/sitecustomize.py" in package
    assert {Path(name).suffix for name in package} >= {".py", ".json", ".gz", ".js", ".css"}


def test_an_installed_wheel_works_without_the_tree(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (scripts,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert "slipstream = slipstream.cli.main:main" in scripts.read_text()
    text = (
        "import slipstream, sys\n"
        "from slipstream.run.launcher import SITE\n"
        "assert slipstream.__file__.startswith(sys.argv[1]), slipstream.__file__\n"
        "print((SITE / 'sitecustomize.py').is_relative_to(sys.argv[1]), SITE.is_dir())\n"
    )
    env = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-c", text, str(tmp_path)]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")
