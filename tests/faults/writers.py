"""Everything that writes files, as functions of a folder and a version: old or new."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from builders import profile
from slipstream.compiler import cache
from slipstream.consensus.kvstore import FolderStore
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.experiment.receipt import Receipt, bare_receipt
from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.lint.lint import lint
from slipstream.flags.lint.rewrite import fix_file
from slipstream.flags.settings import read_settings
from slipstream.machines.files import write_machine
from slipstream.outputs.perfetto.trace import write_perfetto
from slipstream.outputs.tables import write_csv
from slipstream.run.context import write_receipt
from slipstream.run.run_dir import done_facts, mark_done, write_json
from slipstream.writing import atomic_write

OLD, NEW = "old", "new"
Contents = Mapping[str, bytes]


@dataclass(frozen=True)
class Writer:
    write: Callable[[Path, str], object]
    are_together: Callable[[Path, Contents, Contents, Contents], bool] = lambda *_: True
    """whether files that belong together do: what is there, and all of the old and the new"""


def _text(folder: Path, version: str) -> None:
    with atomic_write(folder / "report.html") as temporary:
        temporary.write_text(version * 50_000)


def _table(version: str) -> CostTable:
    costs = {f"dot.{n}": Cost(f"dot.{n}", n + len(version), 8, False) for n in range(50)}
    costs |= {version: Cost(version, 1.0, 8, False)}
    return CostTable(
        (ProgramCosts("1" * 32, f"jit_{version}", costs),), "typical", {"from": version}
    )


def _no_old_manifest(folder: Path, found: Contents, old: Contents, new: Contents) -> bool:
    """Costs are never beside a manifest of others."""
    pairs = {(c["costs.pb"], c["costs.pb.json"]) for c in (old, new)}
    manifest = found.get("costs.pb.json")
    return manifest is None or (found["costs.pb"], manifest) in pairs


_RECEIPTS: dict[str, Receipt] = {}


def _receipt(folder: Path, version: str) -> None:
    if version not in _RECEIPTS:  # it holds the time of day
        _RECEIPTS[version] = replace(bare_receipt(f"the {version} reason"))
    write_receipt(_RECEIPTS[version], folder)


def _no_old_page(folder: Path, found: Contents, old: Contents, new: Contents) -> bool:
    page = found.get("receipt.html")
    return page is None or (found["receipt.json"], page) in {
        (c["receipt.json"], c["receipt.html"]) for c in (old, new)
    }


def _phase(folder: Path, version: str) -> None:
    files = [write_json(folder / f"{n}.json", [version] * 1000) for n in range(3)]
    mark_done(folder, files, {"version": version})


def _done_is_true(folder: Path, found: Contents, old: Contents, new: Contents) -> bool:
    """A phase counts only with all of its files."""
    facts = done_facts(folder)
    return facts is None or dict(found) == dict(old if facts["version"] == OLD else new)


def _fix(folder: Path, version: str) -> None:
    script = folder / "job.sh"
    if version == OLD:
        script.write_text("export XLA_FLAGS='--xla_gpu_graph_level=0'\n" * 10)
    else:
        fix_file(script, lint(read_settings(script), catalogue_of("0.10.2")))


def _cache(folder: Path, version: str) -> None:
    os.environ["XDG_CACHE_HOME"] = str(folder)
    cache.keep("key", {"version": version}, version.encode() * 1000, f"log of {version}")


def _cache_is_whole(folder: Path, found: Contents, old: Contents, new: Contents) -> bool:
    os.environ["XDG_CACHE_HOME"] = str(folder)
    entry = cache.find("key")
    return entry is None or entry["proto"].read_bytes() == str(entry["version"]).encode() * 1000


def _events(version: str):
    return profile().kernel(f"{version}.1", 10).kernel("dot.2", 20 + len(version)).build()


WRITERS = {
    "a report": Writer(_text),
    "costs": Writer(lambda f, v: _table(v).write(f / "costs.pb"), _no_old_manifest),
    "costs for XLA's search": Writer(lambda f, v: _table(v).write(f / "costs")),
    "a receipt": Writer(_receipt, _no_old_page),
    "a phase of a run": Writer(_phase, _done_is_true),
    "flags lint --fix": Writer(_fix),
    "CSV": Writer(lambda f, v: write_csv(_events(v), f / "events.csv")),
    "a Perfetto trace": Writer(lambda f, v: write_perfetto(_events(v), f / "a.pftrace")),
    "a machine file": Writer(lambda f, v: write_machine(f / "m.toml", {"gpu": v * 999})),
    "a compiled program": Writer(_cache, _cache_is_whole),
    "the store of all ranks": Writer(lambda f, v: FolderStore(f).put(v, v.encode() * 9999)),
}
