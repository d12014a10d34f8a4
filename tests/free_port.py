"""Ports for servers that a test starts elsewhere, and that nobody else is given meanwhile."""

import socket
from pathlib import Path

LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_HELD: list[socket.socket] = []
"""names of the ports that this process has given out, until it ends"""


def free_port() -> int:
    """A port that is free, and stays so for whoever is told.

    It lies outside the range from which the system gives ports to connections and to servers that
    ask for any. A name in the same network, which ends with this process, keeps other tests away.
    """
    first_given = int(_RANGE.read_text().split()[0])
    for port in range(first_given - 1, LOWEST, -1):
        if _is_ours(port) and _is_free(port):
            return port
    # All ports are given out by the system: then this one may be, too.
    with socket.socket() as anyone:
        anyone.bind(("localhost", 0))
        return int(anyone.getsockname()[1])


def _is_ours(port: int) -> bool:
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0slipstream-tests-port-{port}")
    except OSError:
        name.close()
        return False
    _HELD.append(name)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as server:
        try:
            server.bind(("", port))
        except OSError:
            return False
    return True
