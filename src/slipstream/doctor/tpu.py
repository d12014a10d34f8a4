"""TPUs: libtpu, huge pages, the runtime's buffer, and what Megascale needs to know of slices."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from slipstream.doctor.machine_facts import MachineFacts
from slipstream.doctor.problems import ERROR, NOTE, WARNING, Problem

BUFFER = "TPU_PREMAPPED_BUFFER_SIZE"
PAGE = 4096
_WITH_HUGE_PAGES = frozenset(("v5e", "v5p", "v6e", "tpu7x"))
_SLICES, _SLICE, _COORDINATOR = (
    "MEGASCALE_NUM_SLICES",
    "MEGASCALE_SLICE_ID",
    "MEGASCALE_COORDINATOR_ADDRESS",
)


def tpu_rules(facts: MachineFacts) -> Iterator[Problem]:
    """All rules about TPUs; those about variables hold wherever they are set."""
    for rule in (_libtpu, _huge_pages, _buffer, _slices):
        yield from rule(facts)


def _libtpu(facts: MachineFacts) -> Iterator[Problem]:
    jax, version, wanted = facts.packages.get("jax"), facts.packages.get("libtpu"), facts.libtpu
    if jax is None or not facts.tpus:
        return
    if version is None:
        yield Problem(
            "no-libtpu", ERROR, f"{len(facts.tpus)} TPUs are present, but libtpu is not installed",
            "jax runs on the CPU and reports it in a single log line",
            f"pip install 'jax[tpu]=={jax}'",
        )  # fmt: skip
    elif wanted is not None and not fnmatch(version, wanted):
        yield Problem(
            "libtpu-version", WARNING, f"libtpu {version} is installed, and jax {jax} asks for "
            f"{wanted}",
            "a release of jax is tested with its own libtpu; flags and programs of others differ",
            f"pip install 'jax[tpu]=={jax}'",
        )  # fmt: skip


def _huge_pages(facts: MachineFacts) -> Iterator[Problem]:
    if _WITH_HUGE_PAGES & set(facts.tpus or ()) and facts.huge_pages not in (None, "always"):
        yield Problem(
            "huge-pages", WARNING, f"transparent huge pages are set to {facts.huge_pages}",
            "with them, the TPU runtime of v5e and newer chips starts and stops much faster (JAX "
            "warns about it)",
            "sudo sh -c 'echo always > /sys/kernel/mm/transparent_hugepage/enabled'",
        )  # fmt: skip


def _buffer(facts: MachineFacts) -> Iterator[Problem]:
    size = facts.environment.get(BUFFER)
    if size is not None and (not size.isdigit() or int(size) % PAGE):
        yield Problem(
            "premapped-buffer", ERROR, f"{BUFFER} is {size!r}; expected a multiple of {PAGE}",
            "the TPU runtime maps the host's memory for transfers in pages of this size",
            f"export {BUFFER}=4294967296   # the default; transfers between slices may need more",
        )  # fmt: skip


def _slices(facts: MachineFacts) -> Iterator[Problem]:
    """As JAX reads them: the number defaults to 1 and the index to 0, unless metadata has them."""
    given = {name: facts.environment.get(name) for name in (_SLICES, _SLICE)}
    wrong = [name for name, value in given.items() if value and not value.isdigit()]
    for name in wrong:
        yield Problem(
            "megascale-slices", ERROR, f"{name} is {given[name]!r}; expected a whole number",
            "jax.distributed.initialize() fails",
            f"export {name}={'2' if name == _SLICES else '0'}",
        )  # fmt: skip
    if wrong:
        return
    count, index = (int(value) if value else None for value in given.values())
    if count is not None and index is not None and index >= max(count, 1):
        yield Problem(
            "megascale-slices", ERROR, f"{_SLICE} is {index}, and {_SLICES} is {count}",
            f"slices are numbered from 0 to {max(count, 1) - 1}: this one joins no job",
            f"export {_SLICES}={index + 1}   # the number of all slices of the job",
        )  # fmt: skip
    if count is not None and count > 1:
        yield from _several_slices(facts, count)
    elif count is None and facts.environment.get(_COORDINATOR):
        yield Problem(
            "megascale-slices", WARNING, f"{_COORDINATOR} is set, but {_SLICES} is not",
            "unless the machine's metadata has it, JAX takes this slice for the only one",
            f"export {_SLICES}=2   # the number of all slices of the job",
        )  # fmt: skip


def _several_slices(facts: MachineFacts, count: int) -> Iterator[Problem]:
    reasons = {
        _COORDINATOR: "every slice takes its own first worker for the coordinator, and they never "
        "find each other",
        _SLICE: "every slice takes itself for the first one",
    }
    for name, why in reasons.items():
        if not facts.environment.get(name):
            value = "<first host of slice 0>:8081" if name == _COORDINATOR else f"0…{count - 1}"
            yield Problem(
                "megascale-slices", NOTE, f"{_SLICES} is {count}, but {name} is not set",
                f"unless the machine's metadata has it, {why}",
                f"export {name}={value}",
            )  # fmt: skip
