"""NCCL's variables: those that fight each other, the machine, or XLA's flags."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.machine_facts import MachineFacts, is_true, number
from slipstream.doctor.problems import ERROR, NOTE, WARNING, Problem


def nccl_rules(facts: MachineFacts) -> Iterator[Problem]:
    """Everything the doctor knows about NCCL."""
    for rule in (_transports, _nvls, _pins, _channels, _hosts, _logging):
        yield from rule(facts)


def _transports(facts: MachineFacts) -> Iterator[Problem]:
    environment = facts.environment
    if _is_one(facts, "NCCL_P2P_DISABLE") and len(facts.gpus or ()) != 1:
        yield Problem(
            "nccl-p2p", ERROR if facts.has_nvlink else WARNING,
            "NCCL_P2P_DISABLE is 1" + (" on a machine with NVLink" if facts.has_nvlink else ""),
            "GPUs of one host then talk through host memory, many times slower",
            "unset NCCL_P2P_DISABLE",
        )  # fmt: skip
    level = environment.get("NCCL_P2P_LEVEL", "").upper()
    if level in ("LOC", "0") and facts.has_nvlink:
        yield Problem(
            "nccl-p2p", ERROR, f"NCCL_P2P_LEVEL is {level} on a machine with NVLink",
            "that is the same as switching direct transfers between GPUs off",
            "unset NCCL_P2P_LEVEL",
        )  # fmt: skip
    if _is_one(facts, "NCCL_SHM_DISABLE") and _is_one(facts, "NCCL_P2P_DISABLE"):
        yield Problem(
            "nccl-shm", ERROR, "NCCL_SHM_DISABLE and NCCL_P2P_DISABLE are both 1",
            "GPUs of one host are left with the network to talk to each other",
            "unset NCCL_SHM_DISABLE NCCL_P2P_DISABLE",
        )  # fmt: skip


def _nvls(facts: MachineFacts) -> Iterator[Problem]:
    user_buffers = is_true(facts.xla_flags.get("xla_gpu_enable_nccl_user_buffers"))
    is_off = facts.environment.get("NCCL_NVLS_ENABLE") == "0"
    algorithms = _algorithms(facts)
    if user_buffers and is_off:
        yield Problem(
            "nccl-user-buffers", ERROR,
            "xla_gpu_enable_nccl_user_buffers is on and NCCL_NVLS_ENABLE is 0",
            "all-gather, all-reduce and reduce-scatter take user buffers through NVLS only: the "
            "buffers are registered, at a price, and not used",
            "export NCCL_NVLS_ENABLE=1",
        )  # fmt: skip
    if is_off and algorithms and algorithms <= {"NVLS", "NVLSTREE"}:
        yield Problem(
            "nccl-algo", ERROR, "NCCL_ALGO asks for NVLS and NCCL_NVLS_ENABLE switches it off",
            "no algorithm is left, and NCCL fails at the first collective",
            "unset NCCL_ALGO",
        )  # fmt: skip
    is_on = facts.environment.get("NCCL_NVLS_ENABLE") == "1"
    if (is_on or user_buffers) and algorithms and not algorithms & {"NVLS", "NVLSTREE"}:
        yield Problem(
            "nccl-algo", WARNING,
            f"NVLS is wanted, and NCCL_ALGO={facts.environment['NCCL_ALGO']} leaves it out",
            "the switch could do the reductions, and isn't asked",
            "unset NCCL_ALGO",
        )  # fmt: skip


def _pins(facts: MachineFacts) -> Iterator[Problem]:
    for name, what in (("NCCL_ALGO", "algorithm"), ("NCCL_PROTO", "protocol")):
        value = facts.environment.get(name, "")
        if value and "," not in value and not value.startswith("^"):
            yield Problem(
                "nccl-pin", WARNING, f"{name} pins one {what}: {value}",
                f"NCCL chooses by size and machine; one {what} for all sizes is slow for some",
                f"unset {name}",
            )  # fmt: skip
    if "^" in facts.environment.get("NCCL_PROTO", "") and _sizes(facts):
        yield Problem(
            "nccl-pin", NOTE, "NCCL_PROTO leaves protocols out while buffer sizes are set for them",
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
                "the least is more than the most: NCCL takes one of them and says nothing",
                f"unset NCCL_MIN_{kind} NCCL_MAX_{kind}",
            )  # fmt: skip
        flag = number(facts.xla_flags.get("xla_gpu_nccl_collective_max_nchannels"))
        if flag and least is not None and least > flag:
            yield Problem(
                "nccl-channels", WARNING,
                f"NCCL_MIN_{kind} is {least:.0f}, and XLA allows {flag:.0f} channels",
                "XLA keeps SMs free for compute with its limit, and the variable takes them",
                f"unset NCCL_MIN_{kind}",
            )  # fmt: skip


def _hosts(facts: MachineFacts) -> Iterator[Problem]:
    if facts.hosts < 2:
        return
    if _is_one(facts, "NCCL_IB_DISABLE") and facts.infiniband:
        yield Problem(
            "nccl-ib", ERROR,
            f"NCCL_IB_DISABLE is 1, and {', '.join(facts.infiniband)} are here",
            "hosts then talk over TCP sockets instead of RDMA",
            "unset NCCL_IB_DISABLE",
        )  # fmt: skip
    interface = facts.environment.get("NCCL_SOCKET_IFNAME", "")
    if interface.lstrip("=") == "lo":
        yield Problem(
            "nccl-interface", ERROR, f"NCCL_SOCKET_IFNAME is lo in a job of {facts.hosts} hosts",
            "the loopback interface reaches no other host: NCCL hangs or fails at the start",
            "unset NCCL_SOCKET_IFNAME",
        )  # fmt: skip
    if _sizes(facts):
        yield Problem(
            "nccl-single-host", NOTE, f"{' and '.join(_sizes(facts))} are set in a job of "
            f"{facts.hosts} hosts",
            "the JAX guide found these useful on one host, and not between hosts",
            f"unset {' '.join(_sizes(facts))}",
        )  # fmt: skip


def _logging(facts: MachineFacts) -> Iterator[Problem]:
    level = facts.environment.get("NCCL_DEBUG", "").upper()
    if level in ("INFO", "TRACE"):
        yield Problem(
            "nccl-debug", NOTE if level == "INFO" else WARNING, f"NCCL_DEBUG is {level}",
            "every process writes pages at start, and TRACE writes at every collective",
            "export NCCL_DEBUG=WARN",
        )  # fmt: skip


def _is_one(facts: MachineFacts, name: str) -> bool:
    return facts.environment.get(name, "").strip() == "1"


def _algorithms(facts: MachineFacts) -> set[str]:
    """The algorithms that NCCL_ALGO allows; empty when it allows all, or takes some away."""
    value = facts.environment.get("NCCL_ALGO", "").upper()
    return set() if value.startswith("^") else {name for name in value.split(",") if name}


def _sizes(facts: MachineFacts) -> list[str]:
    return [n for n in ("NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE") if facts.environment.get(n)]
