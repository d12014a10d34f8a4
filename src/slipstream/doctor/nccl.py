"""NCCL variables that contradict each other, the machine, or XLA flags."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.machine_facts import MachineFacts, is_true, number
from slipstream.doctor.problems import ERROR, NOTE, WARNING, Problem


def nccl_rules(facts: MachineFacts) -> Iterator[Problem]:
    """All rules about NCCL."""
    for rule in (_transports, _nvls, _pins, _channels, _hosts, _logging):
        yield from rule(facts)


def _transports(facts: MachineFacts) -> Iterator[Problem]:
    environment = facts.environment
    if _is_one(facts, "NCCL_P2P_DISABLE") and len(facts.gpus or ()) != 1:
        yield Problem(
            "nccl-p2p", ERROR if facts.has_nvlink else WARNING,
            "NCCL_P2P_DISABLE is 1" + (" on a machine with NVLink" if facts.has_nvlink else ""),
            "GPUs on one host then communicate through host memory, which is many times slower",
            "unset NCCL_P2P_DISABLE",
        )  # fmt: skip
    level = environment.get("NCCL_P2P_LEVEL", "").upper()
    if level in ("LOC", "0") and facts.has_nvlink:
        yield Problem(
            "nccl-p2p", ERROR, f"NCCL_P2P_LEVEL is {level} on a machine with NVLink",
            "this disables direct transfers between GPUs",
            "unset NCCL_P2P_LEVEL",
        )  # fmt: skip
    if _is_one(facts, "NCCL_SHM_DISABLE") and _is_one(facts, "NCCL_P2P_DISABLE"):
        yield Problem(
            "nccl-shm", ERROR, "NCCL_SHM_DISABLE and NCCL_P2P_DISABLE are both 1",
            "GPUs on one host then communicate over the network",
            "unset NCCL_SHM_DISABLE NCCL_P2P_DISABLE",
        )  # fmt: skip


def _nvls(facts: MachineFacts) -> Iterator[Problem]:
    user_buffers = is_true(facts.xla_flags.get("xla_gpu_enable_nccl_user_buffers"))
    is_off = facts.environment.get("NCCL_NVLS_ENABLE") == "0"
    algorithms = _algorithms(facts)
    if user_buffers and is_off:
        yield Problem(
            "nccl-user-buffers", ERROR,
            "xla_gpu_enable_nccl_user_buffers is on, but NCCL_NVLS_ENABLE is 0",
            "all-gather, all-reduce and reduce-scatter use user buffers only with NVLS: the "
            "buffers are registered, at a cost, but not used",
            "export NCCL_NVLS_ENABLE=1",
        )  # fmt: skip
    if is_off and algorithms and algorithms <= {"NVLS", "NVLSTREE"}:
        yield Problem(
            "nccl-algo", ERROR, "NCCL_ALGO requires NVLS, but NCCL_NVLS_ENABLE disables it",
            "no algorithm is left, so NCCL fails at the first collective",
            "unset NCCL_ALGO",
        )  # fmt: skip
    is_on = facts.environment.get("NCCL_NVLS_ENABLE") == "1"
    if (is_on or user_buffers) and algorithms and not algorithms & {"NVLS", "NVLSTREE"}:
        yield Problem(
            "nccl-algo", WARNING,
            f"NVLS is enabled, but NCCL_ALGO={facts.environment['NCCL_ALGO']} excludes it",
            "the switch could do the reductions, but is not used",
            "unset NCCL_ALGO",
        )  # fmt: skip


def _pins(facts: MachineFacts) -> Iterator[Problem]:
    for name, what in (("NCCL_ALGO", "algorithm"), ("NCCL_PROTO", "protocol")):
        value = facts.environment.get(name, "")
        if value and "," not in value and not value.startswith("^"):
            yield Problem(
                "nccl-pin", WARNING, f"{name} pins one {what}: {value}",
                f"NCCL chooses by size and machine; one {what} is slow for some sizes",
                f"unset {name}",
            )  # fmt: skip
    if "^" in facts.environment.get("NCCL_PROTO", "") and _sizes(facts):
        yield Problem(
            "nccl-pin", NOTE, "NCCL_PROTO excludes protocols whose buffer sizes are set",
            "one of the two has no effect",
            "unset NCCL_PROTO",
        )  # fmt: skip


def _channels(facts: MachineFacts) -> Iterator[Problem]:
    for kind in ("NCHANNELS", "CTAS"):
        least = number(facts.environment.get(f"NCCL_MIN_{kind}"))
        most = number(facts.environment.get(f"NCCL_MAX_{kind}"))
        if least is not None and most is not None and least > most:
            yield Problem(
                "nccl-channels", ERROR,
                f"NCCL_MIN_{kind} is {least:.0f} and NCCL_MAX_{kind} is {most:.0f}",
                "the minimum exceeds the maximum: NCCL silently uses one of them",
                f"unset NCCL_MIN_{kind} NCCL_MAX_{kind}",
            )  # fmt: skip
        flag = number(facts.xla_flags.get("xla_gpu_nccl_collective_max_nchannels"))
        if flag and least is not None and least > flag:
            yield Problem(
                "nccl-channels", WARNING,
                f"NCCL_MIN_{kind} is {least:.0f}, but XLA allows {flag:.0f} channels",
                "XLA's limit keeps SMs free for compute, and the variable takes them away",
                f"unset NCCL_MIN_{kind}",
            )  # fmt: skip


def _hosts(facts: MachineFacts) -> Iterator[Problem]:
    if facts.hosts < 2:
        return
    if _is_one(facts, "NCCL_IB_DISABLE") and facts.infiniband:
        yield Problem(
            "nccl-ib", ERROR,
            f"NCCL_IB_DISABLE is 1, but this host has {', '.join(facts.infiniband)}",
            "hosts then communicate over TCP sockets instead of RDMA",
            "unset NCCL_IB_DISABLE",
        )  # fmt: skip
    interface = facts.environment.get("NCCL_SOCKET_IFNAME", "")
    if interface.lstrip("=") == "lo":
        yield Problem(
            "nccl-interface", ERROR, f"NCCL_SOCKET_IFNAME is lo in a job of {facts.hosts} hosts",
            "the loopback interface reaches no other host: NCCL hangs or fails at startup",
            "unset NCCL_SOCKET_IFNAME",
        )  # fmt: skip
    if _sizes(facts):
        yield Problem(
            "nccl-single-host", NOTE, f"{' and '.join(_sizes(facts))} are set in a job of "
            f"{facts.hosts} hosts",
            "the JAX guide recommends them on one host, not between hosts",
            f"unset {' '.join(_sizes(facts))}",
        )  # fmt: skip


def _logging(facts: MachineFacts) -> Iterator[Problem]:
    level = facts.environment.get("NCCL_DEBUG", "").upper()
    if level in ("INFO", "TRACE"):
        yield Problem(
            "nccl-debug", NOTE if level == "INFO" else WARNING, f"NCCL_DEBUG is {level}",
            "every process logs pages at startup, and TRACE logs every collective",
            "export NCCL_DEBUG=WARN",
        )  # fmt: skip


def _is_one(facts: MachineFacts, name: str) -> bool:
    return facts.environment.get(name, "").strip() == "1"


def _algorithms(facts: MachineFacts) -> set[str]:
    """The algorithms that NCCL_ALGO allows; empty if it allows all or excludes some."""
    value = facts.environment.get("NCCL_ALGO", "").upper()
    return set() if value.startswith("^") else {name for name in value.split(",") if name}


def _sizes(facts: MachineFacts) -> list[str]:
    return [n for n in ("NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE") if facts.environment.get(n)]
