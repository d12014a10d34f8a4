"""Facts about this machine and its environment, for `slipstream doctor`.

Reading never fails: unknown facts are None, and the rules in `doctor` skip them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "jax",
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "libtpu",
)
SYSCTLS = (
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.optmem_max",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
)
GOOGLE = "0x1ae0"
"""the vendor of TPUs on the PCI bus"""
TPU_CHIPS = {
    "0x0027": "v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "tpu7x",
}
"""chips by their device on the PCI bus, as in JAX's hardware_utils.py"""
CUPTI_HOLDERS = ("nv-hostengine", "dcgm-exporter", "dcgmi", "nsys", "nsys-launcher", "ncu")
"""programs that may use the GPU's profiling interface, as named in /proc"""
NSIGHT = ("nsys", "nsys-launcher", "ncu")
_QUERY = "name,driver_version,compute_cap,memory.total"
_PATIENCE_S = 10.0

Run = Callable[[list[str]], str | None]


@dataclass(frozen=True)
class LocalGpu:
    """One GPU, as nvidia-smi reports it."""

    name: str
    driver: str = ""
    compute_capability: str = ""
    memory_mib: int | None = None


@dataclass(frozen=True)
class MachineFacts:
    """What is known about a machine; None means unknown, an empty tuple means none."""

    packages: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[LocalGpu, ...] | None = None
    links: tuple[str, ...] | None = None
    """how each pair of GPUs is connected: NV18, PIX, SYS …"""
    inactive_nvlinks: int | None = None
    processes: tuple[str, ...] | None = None
    """running programs that may use CUPTI"""
    parents: tuple[str, ...] | None = None
    """the names of the parent processes"""
    infiniband: tuple[str, ...] | None = None
    sysctls: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    is_profiled: bool = False
    """whether the coming run will be profiled"""
    tpus: tuple[str, ...] | None = None
    """the kind of each TPU chip: v5e, v5p …"""
    libtpu: str | None = None
    """the libtpu that the installed jax asks for: `0.0.42.*`"""
    huge_pages: str | None = None
    """when the kernel uses transparent huge pages: always, madvise or never"""

    @property
    def xla_flags(self) -> Mapping[str, str]:
        """The flags in XLA_FLAGS, without dashes; a flag without a value is `true`."""
        return parse_xla_flags(self.environment.get("XLA_FLAGS", ""))

    @property
    def has_nvlink(self) -> bool:
        return any(link.startswith("NV") for link in self.links or ())

    @property
    def hosts(self) -> int:
        """How many hosts the job runs on, according to the environment."""
        for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "MEGASCALE_NUM_SLICES", "NNODES"):
            if (count := number(self.environment.get(name))) is not None:
                return int(count)
        return 1

    @property
    def is_megascale(self) -> bool:
        return any(name.startswith("MEGASCALE_") for name in self.environment)


def number(text: str | None) -> float | None:
    """The value of a variable as a number; None if it isn't one."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def is_true(text: str | None) -> bool:
    """Whether a variable is true, in the spellings that JAX accepts."""
    return (text or "").strip().lower() in ("1", "true", "yes", "on", "t", "y")


def is_false(text: str | None) -> bool:
    """Whether a variable is set and false."""
    return (text or "").strip().lower() in ("0", "false", "no", "off", "f", "n")


def parse_xla_flags(text: str) -> dict[str, str]:
    """Flags by name; of several with one name, the last counts, as in XLA."""
    if text.strip() and not text.strip().startswith("-"):
        # XLA takes a value that doesn't start with a dash as the name of a file of flags.
        text = _read(Path(text.strip())) or ""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    pairs = (word.lstrip("-").partition("=") for word in words if word.startswith("-"))
    return {name: value if equals else "true" for name, equals, value in pairs}


def read_machine_facts(
    environment: Mapping[str, str] | None = None,
    run: Run | None = None,
    root: Path = Path("/"),
    is_profiled: bool = False,
) -> MachineFacts:
    """Inspect this machine; `run` and `root` are for tests."""
    run = run or _run
    links = _links(run(["nvidia-smi", "topo", "-m"]))
    return MachineFacts(
        packages=_packages(),
        gpus=_gpus(run(["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"])),
        tpus=_tpus(root / "sys" / "bus" / "pci" / "devices"),
        libtpu=_wanted_libtpu(),
        huge_pages=_huge_pages(root / "sys" / "kernel" / "mm" / "transparent_hugepage" / "enabled"),
        links=links,
        inactive_nvlinks=_inactive(run(["nvidia-smi", "nvlink", "-s"])) if links else None,
        processes=_processes(root / "proc"),
        parents=_parents(root / "proc"),
        infiniband=_names(root / "sys" / "class" / "infiniband"),
        sysctls=_sysctls(root / "proc" / "sys"),
        environment=dict(os.environ if environment is None else environment),
        is_profiled=is_profiled,
    )


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout if done.returncode == 0 else None


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _wanted_libtpu() -> str | None:
    """From `libtpu==0.0.42.*; extra == "tpu"` among the requirements of jax."""
    try:
        requirements = metadata.requires("jax") or []
    except metadata.PackageNotFoundError:
        return None
    found = (re.match(r"libtpu==([\w.*]+)", one) for one in requirements)
    return next((match[1] for match in found if match), None)


def _tpus(devices: Path) -> tuple[str, ...] | None:
    """The TPU chips on the PCI bus, as JAX recognises them."""
    if not devices.is_dir():
        return None
    vendors = sorted(devices.glob("*/vendor"))
    ids = [
        (_read(vendor.with_name("device")) or "").strip()
        for vendor in vendors
        if (_read(vendor) or "").strip() == GOOGLE
    ]
    return tuple(TPU_CHIPS[one] for one in ids if one in TPU_CHIPS)


def _huge_pages(file: Path) -> str | None:
    """`madvise` of `always [madvise] never`."""
    chosen = re.search(r"\[(\w+)\]", _read(file) or "")
    return chosen[1] if chosen else None


def _gpus(text: str | None) -> tuple[LocalGpu, ...] | None:
    """`NVIDIA H200, 580.65.06, 9.0, 143771`, one line per GPU."""
    if text is None:
        return None
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4:
            name, driver, capability, memory = parts
            mib = number(memory)
            gpus.append(LocalGpu(name, driver, capability, int(mib) if mib is not None else None))
    return tuple(gpus)


def _links(text: str | None) -> tuple[str, ...] | None:
    """The upper half of nvidia-smi's topology matrix: how each pair of GPUs is connected."""
    if text is None:
        return None
    rows = [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in text.splitlines()]
    rows = [row for row in rows if len(row) > 1 and re.fullmatch(r"GPU\d+", row[0])]
    # The header also begins with GPU0, but only rows have an X on the diagonal.
    matrix = [row[1:] for row in rows if "X" in row]
    return tuple(row[at] for y, row in enumerate(matrix) for at in range(y + 1, len(matrix)))


def _inactive(text: str | None) -> int | None:
    return None if text is None else len(re.findall(r"<inactive>|inActive", text))


def _processes(proc: Path) -> tuple[str, ...] | None:
    try:
        folders = [path for path in proc.iterdir() if path.name.isdigit()]
    except OSError:
        return None
    names = {(_read(folder / "comm") or "").strip() for folder in folders}
    return tuple(sorted(names & set(CUPTI_HOLDERS)))


def _parents(proc: Path) -> tuple[str, ...] | None:
    """The names of all ancestors of this process, its parent first."""
    found: list[str] = []
    pid = "self"
    for _ in range(64):
        status = _read(proc / pid / "status")
        match = re.search(r"^PPid:\s*(\d+)", status or "", re.MULTILINE)
        if match is None:
            return tuple(found) if found else None
        pid = match[1]
        if pid == "0":
            break
        found.append((_read(proc / pid / "comm") or "").strip())
    return tuple(found)


def _names(folder: Path) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(path.name for path in folder.iterdir()))
    except FileNotFoundError:
        return ()
    except OSError:
        return None


def _sysctls(folder: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for name in SYSCTLS:
        words = (_read(folder / name.replace(".", "/")) or "").split()
        if words and all(word.lstrip("-").isdigit() for word in words):
            found[name] = tuple(map(int, words))
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
