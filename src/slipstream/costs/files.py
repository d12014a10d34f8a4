"""Cost files as XLA reads them: `.pb`, `.pbtxt`, or a folder of `<fingerprint>.pb`.

XLA silently ignores files with other endings, so they are never written. Each file has a manifest
next to it, `<file>.json`, with the facts that decide whether the costs still fit.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

from slipstream.costs.table import SEPARATOR, Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput
from slipstream.reading import describe, read_input, read_object, unreadable
from slipstream.remote.paths import any_path, is_folder, is_regular
from slipstream.sources.proto_schema import message
from slipstream.writing import atomic_write, make_folder

ENDINGS = (".pb", ".pbtxt")
MANIFEST = ".json"
_FINGERPRINT = re.compile(r"[0-9a-f]{32}")


def write_costs(table: CostTable, path: str | os.PathLike[str]) -> list[Path]:
    """Write a table to a file or, if the path has no ending, to a folder that XLA can search."""
    target = any_path(path)
    _refuse_useless(table, target)
    if target.suffix in ENDINGS:
        return [_write_file(table, target), _write_manifest(table, target)]
    if target.suffix and not target.is_dir():
        raise BadInput(
            f"XLA ignores {target.name}: it only reads .pb and .pbtxt files, and folders of "
            f"<fingerprint>.pb; write to {target.with_suffix('.pb').name} instead"
        )
    return _write_folder(table, target)


def _refuse_useless(table: CostTable, target: Path) -> None:
    """Refuse costs that match nothing: XLA would accept the file and ignore its contents."""
    if table.is_useful:
        return
    seen = ", ".join([name for p in table.programs for name in p.costs][:3]) or "no costs"
    raise BadInput(
        f"not written: none of the costs ({seen}) match the program, so XLA would read "
        f"{target.name} and use none of it; other policies than jax attribute kernels inside "
        "command buffers, try: --policy typical"
    )


def read_costs(path: str | os.PathLike[str]) -> CostTable:
    """Read what `write_costs` or any other tool wrote."""
    source = any_path(path)
    if is_folder(source):
        return _read_folder(source)
    if source.suffix not in ENDINGS:
        raise BadInput(
            f"{source} is not a cost file; expected a .pb or .pbtxt file, or a folder of "
            "<fingerprint>.pb: XLA ignores anything else"
        )
    data = read_input(source, "a cost file; make one with: slipstream costs PROFILE -o OUT")
    return _read_table(source, data, None)


def _write_folder(table: CostTable, folder: Path) -> list[Path]:
    nameless = [program.program for program in table.programs if program.fingerprint is None]
    if nameless:
        raise BadInput(
            f"{', '.join(nameless)} has no fingerprint, so XLA could not find its costs in a "
            f"folder; write one file instead: {folder}.pb"
        )
    for program in table.programs:
        # The fingerprint comes from the recording, and becomes the name of a file.
        if not _FINGERPRINT.fullmatch(program.fingerprint or ""):
            raise BadInput(
                f"{program.program} has the fingerprint {program.fingerprint!r}; XLA looks for a "
                f"file with the name of its fingerprint, 32 hexadecimal digits; write one file "
                f"instead: {folder}.pb"
            )
    make_folder(folder)
    files = []
    for program in table.programs:
        one = CostTable((program,), table.policy, table.facts)
        target = folder / f"{program.fingerprint}.pb"
        files += [_write_file(one, target), _write_manifest(one, target)]
    return files


def serialized(table: CostTable, fingerprint: str | None) -> bytes:
    """The costs of one program in the form that XLA takes in memory (`fdo_profile`)."""
    proto = message("ProfiledInstructionsProto")()
    for cost in table.of(fingerprint).values():
        proto.costs.add(name=cost.name, cost_us=cost.us)
    return bytes(proto.SerializeToString())


def _write_file(table: CostTable, target: Path) -> Path:
    """Write the costs; until the new manifest is there, too, they have none."""
    proto = message("ProfiledInstructionsProto")()
    several = len(table.programs) > 1
    for program in table.programs:
        prefix = f"{program.fingerprint}{SEPARATOR}" if several and program.fingerprint else ""
        for cost in program.costs.values():
            proto.costs.add(name=prefix + cost.name, cost_us=cost.us)
    with suppress(OSError):
        target.with_name(target.name + MANIFEST).unlink()
    if target.suffix == ".pbtxt":
        from google.protobuf import text_format

        _replace(target, text_format.MessageToString(proto).encode())
    else:
        _replace(target, proto.SerializeToString())
    return target


def _write_manifest(table: CostTable, target: Path) -> Path:
    programs = [
        {
            "program": program.program,
            "fingerprint": program.fingerprint,
            "instructions": len(program.costs),
            "executions": {c.name: c.executions for c in program.costs.values()},
            "communication": [c.name for c in program.costs.values() if c.is_communication],
        }
        for program in table.programs
    ]
    text = json.dumps({"policy": table.policy, **table.facts, "programs": programs}, indent=1)
    manifest = target.with_name(target.name + MANIFEST)
    _replace(manifest, text.encode() + b"\n")
    return manifest


def _replace(target: Path, content: bytes) -> None:
    make_folder(target.parent)
    with atomic_write(target) as temporary:
        temporary.write_bytes(content)


def _read_folder(folder: Path) -> CostTable:
    try:
        files = sorted(p for p in folder.iterdir() if p.suffix in ENDINGS)
    except OSError as error:
        raise unreadable(folder, error, "a folder of <fingerprint>.pb") from None
    if not files:
        raise BadInput(
            f"{folder} holds no cost files; expected <fingerprint>.pb or .pbtxt; "
            f"make one with: slipstream costs PROFILE -o {folder}"
        )
    tables = []
    for file in files:
        fingerprint = file.stem if _FINGERPRINT.fullmatch(file.stem) else None
        tables.append(_read_table(file, read_input(file, "a cost file"), fingerprint))
    programs = tuple(program for table in tables for program in table.programs)
    return CostTable(programs, tables[0].policy, tables[0].facts)


def _read_table(source: Path, data: bytes, fingerprint: str | None) -> CostTable:
    costs, manifest = _parse(source, data), _read_manifest(source)
    try:
        return _table(costs, manifest, fingerprint)
    except BadInput as error:
        raise BadInput(
            f"{source}: {error}; make it again with: slipstream costs PROFILE -o OUT"
        ) from None


def _parse(source: Path, data: bytes) -> list[tuple[str, float]]:
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError

    proto = message("ProfiledInstructionsProto")()
    try:
        if source.suffix == ".pbtxt":
            text_format.Parse(data.decode("utf-8", "replace"), proto)
        else:
            proto.ParseFromString(data)
    except (DecodeError, text_format.ParseError, RecursionError) as error:
        kind = "text" if source.suffix == ".pbtxt" else "binary"
        raise BadInput(
            f"{source} is not a {kind} ProfiledInstructionsProto ({describe(error)}); it may have "
            "the wrong ending or be truncated; make it again with: slipstream costs PROFILE -o OUT"
        ) from None
    return [(cost.name, cost.cost_us) for cost in proto.costs]


def _read_manifest(source: Path) -> dict[str, Any]:
    manifest = source.with_name(source.name + MANIFEST)
    if not is_regular(manifest):
        return {}
    found = read_object(manifest, "a manifest of costs")
    for place, value, kinds, expected in _typed(found):
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise BadInput(
                f"{manifest}: {place} is {value!r:.60}; expected {expected}; delete the manifest, "
                "or make the costs again with: slipstream costs PROFILE -o OUT"
            )
    return found


def _typed(manifest: dict[str, Any]) -> Iterator[tuple[str, Any, tuple[type, ...], str]]:
    """(place, value, types, expected) of every value that is used; outer ones come first."""
    maybe = (str, NoneType)
    for key in ("policy", "jax_version", "jaxlib_version", "device", "date"):
        yield key, manifest.get(key), maybe, "a text"
    for key in ("topology", "flags"):
        yield key, manifest.get(key), (dict, NoneType), "an object"
    yield "programs", manifest.get("programs", []), (list,), "a list of programs"
    for number, program in enumerate(manifest.get("programs", [])):
        place = f"programs[{number}]"
        yield place, program, (dict,), "an object"
        yield f"{place}.program", program.get("program"), maybe, "a text"
        yield f"{place}.fingerprint", program.get("fingerprint"), maybe, "a text"
        yield f"{place}.communication", program.get("communication", []), (list,), "a list"
        yield f"{place}.executions", program.get("executions", {}), (dict,), "an object"
        for name, count in program.get("executions", {}).items():
            yield f"{place}.executions[{name!r:.60}]", count, (int, NoneType), "a number"


def _table(
    costs: list[tuple[str, float]], manifest: dict[str, Any], fingerprint: str | None
) -> CostTable:
    in_folder = fingerprint is not None
    stated = {p.get("fingerprint"): p for p in manifest.get("programs", [])}
    if fingerprint is None and len(stated) == 1:
        fingerprint = next(iter(stated))
    bound = {fingerprint} if in_folder else set()
    found: dict[str | None, dict[str, Cost]] = {}
    for name, us in costs:
        own, separator, plain = name.rpartition(SEPARATOR)
        key = own if separator else fingerprint
        if separator:
            bound.add(own)
        about = stated.get(key, {})
        executions: Mapping[str, int] = about.get("executions", {})
        communicates = plain in about.get("communication", ())
        cost = Cost(plain, us, executions.get(plain), communicates)
        found.setdefault(key, {})[plain] = cost
    programs = tuple(
        ProgramCosts(
            key, stated.get(key, {}).get("program") or "any program", entries, key in bound
        )
        for key, entries in found.items()
    )
    facts = {k: v for k, v in manifest.items() if k not in ("policy", "programs")}
    return CostTable(programs, str(manifest.get("policy", "")), facts)
