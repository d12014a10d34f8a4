"""The bill of materials is complete, and valid by CycloneDX's schema."""

from __future__ import annotations

import importlib.metadata
import json
import runpy
import subprocess
import sys
from email.message import Message
from pathlib import Path

import pytest

from test_locks import PROJECT, canonicalize_name, declared, locked

SCRIPT = Path(__file__).parents[1] / "scripts" / "sbom.py"


def report(versions: dict[str, str]) -> str:
    """What pip would report of packages that are installed here."""
    items = [
        {
            "metadata": {"name": name, "version": version},
            "download_info": {"url": "x", "archive_info": {"hashes": {"sha256": f"{i:064x}"}}},
        }
        for i, (name, version) in enumerate(versions.items())
    ]
    return json.dumps({"version": "1", "install": items})


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "report.json").write_text(text)
    command = [sys.executable, str(SCRIPT), str(folder / "report.json"), str(folder / "sbom.json")]
    return subprocess.run(command, capture_output=True, text=True)


def installed(names: list[str]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in names}


def test_every_component_has_version_licence_hash_and_dependencies(tmp_path: Path) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    building = {canonicalize_name(one.name) for one in declared("editable")}
    names = [name for name in locked("core", python) if name not in building]
    versions = installed(names)
    done = run(tmp_path, report(versions))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "sbom.json").read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["component"]["name"] == PROJECT["name"]
    parts = {one["name"]: one for one in found["components"]}
    for name, part in parts.items():
        assert part["version"] == versions[name] and part["purl"] == part["bom-ref"]
        (digest,) = part["hashes"]
        assert digest["alg"] == "SHA-256" and len(digest["content"]) == 64
        assert part["licenses"], name
    needs = {one["ref"]: one.get("dependsOn", []) for one in found["dependencies"]}
    direct = {canonicalize_name(one.name) for one in declared(None)}
    assert {ref.partition("/")[2].partition("@")[0] for ref in needs["slipstream"]} == direct
    assert direct < set(parts) and "llvmlite" in parts and "://" not in json.dumps(parts)
    assert needs[parts["numba"]["bom-ref"]] == [
        parts[name]["bom-ref"] for name in ("llvmlite", "numpy")
    ]


def test_another_version_than_the_installed_one_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, report({**installed([one.name for one in declared(None)]), "numba": "0"}))
    assert done.returncode == 1 and "expected 0" in done.stderr


def test_a_bill_that_breaks_the_schema_is_not_written(tmp_path: Path) -> None:
    names = {canonicalize_name(one.name) for one in declared(None)} | {"llvmlite"}
    items = json.loads(report(installed(sorted(names))))
    items["install"][0]["download_info"]["archive_info"]["hashes"] = {"sha256": "no digest"}
    done = run(tmp_path, json.dumps(items))
    assert done.returncode == 1 and "does not follow CycloneDX's schema" in done.stderr
    assert not (tmp_path / "sbom.json").exists()


def test_a_package_without_a_licence_is_looked_up_by_people() -> None:
    script = runpy.run_path(str(SCRIPT))
    about = Message()
    about["Name"] = "unlicensed"
    with pytest.raises(SystemExit, match="unlicensed states no licence; look it up"):
        script["licences"](about)
