"""Write a software bill of materials (CycloneDX JSON) of what Slipstream needs at run time.

    pip install --dry-run --ignore-installed --require-hashes -r requirements/core.txt --report FILE
    python scripts/sbom.py FILE slipstream.cdx.json

`make sbom` runs both. Every component has its version, its licence as its authors state it, the
SHA-256 of the file that pip would install, and what it depends on. Licences and dependencies are
read from the installed packages, which must have the same versions. The result is validated
against CycloneDX's schema.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from importlib.metadata import PackageMetadata, distribution, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def bill(report: dict[str, Any]) -> str:
    """The bill of materials of pip's report, as JSON."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    files = {canonical(item["metadata"]["name"]): item for item in report["install"]}
    direct = names(PROJECT["dependencies"])
    # Other files are for building Slipstream itself.
    needs = dependencies(direct, set(files))
    own = _own()
    bom = Bom()
    bom.metadata.component = own
    parts = {name: component(name, files[name]) for name in sorted(needs)}
    for name, part in parts.items():
        bom.components.add(part)
        bom.register_dependency(part, [parts[other] for other in sorted(needs[name])])
    bom.register_dependency(own, [parts[name] for name in direct])
    return JsonV1Dot6(bom).output_as_string(indent=1)


def component(name: str, item: dict[str, Any]) -> Component:
    """One package, as pip would install it."""
    from cyclonedx.contrib.hash.factories import HashTypeFactory
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    about, version = metadata(name), item["metadata"]["version"]
    if about["Version"] != version:
        sys.exit(f"{name} {about['Version']} is installed, expected {version}: make check")
    url = PackageURL("pypi", name=name, version=version)
    hashes = item["download_info"]["archive_info"]["hashes"]
    make_hash = HashTypeFactory().from_hashlib_alg
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        description=about["Summary"],
        purl=url,
        bom_ref=str(url),
        licenses=licences(about),
        hashes=[make_hash(algorithm, value) for algorithm, value in hashes.items()],
    )


def licences(about: PackageMetadata) -> list[Any]:
    """A package's licence expression; older packages have classifiers, or only a text."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.license import LicenseAcknowledgement

    kinds = [one for one in about.get_all("Classifier") or [] if one.startswith("License :: ")]
    classified = [one.rpartition(" :: ")[2] for one in kinds if not one.endswith("OSI Approved")]
    expression, text = (about.get(name) for name in ("License-Expression", "License"))
    found = [expression] if expression else classified or [text] if text else classified
    if not found:
        sys.exit(f"{about['Name']} states no licence; look it up, and add it to scripts/sbom.py")
    # Some packages have the whole text of a licence in place of its name.
    make, declared = LicenseFactory().make_from_string, LicenseAcknowledgement.DECLARED
    return [make(one.splitlines()[0], license_acknowledgement=declared) for one in found]


def dependencies(direct: list[str], known: set[str]) -> dict[str, set[str]]:
    """By name, what each of some packages needs, and what these need."""
    found: dict[str, set[str]] = {}
    waiting = list(direct)
    while waiting:
        name = waiting.pop()
        if name not in found:
            asked = [one for one in distribution(name).requires or [] if "extra" not in one]
            # What a marker excludes here is not among the known.
            found[name] = set(names(asked)) & known
            waiting += found[name]
    return found


def names(requirements: list[str]) -> list[str]:
    return [canonical(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in requirements]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _own() -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import DisjunctiveLicense

    return Component(
        type=ComponentType.APPLICATION,
        name=PROJECT["name"],
        version=PROJECT["version"],
        description=PROJECT["description"],
        bom_ref=PROJECT["name"],
        licenses=[DisjunctiveLicense(id=PROJECT["license"])],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = bill(json.loads(options.report.read_text()))
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        sys.exit(f"the bill of materials does not follow CycloneDX's schema: {problem}")
    options.output.write_text(text + "\n")
    print(f"{options.output}: {len(json.loads(text)['components'])} components")


if __name__ == "__main__":
    main()
