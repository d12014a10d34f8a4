"""Access to the viewer: requests need its token and a Host header that names this machine."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import threading
from functools import cached_property

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANYWHERE = ("0.0.0.0", "::", "")


class Guard:
    """One server's token, and the names by which it may be addressed."""

    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        self.host, self.port = host, port
        self.token = token or secrets.token_urlsafe(24)
        # Servers on other ports of a host see the same cookies, so the name contains the port.
        self.cookie = f"slipstream-{port}"
        self._tickets: list[str] = []
        self._using = threading.Lock()

    def ticket(self) -> str:
        """A token for one use, because every user of a machine can read command lines."""
        self._tickets.append(secrets.token_urlsafe(24))
        return self._tickets[-1]

    def accepts(self, token: str) -> bool:
        """Whether this is the token or an unused ticket; a ticket is then used."""
        with self._using:
            tickets = self._tickets
            used = [one for one in tickets if hmac.compare_digest(token.encode(), one.encode())]
            self._tickets = [one for one in tickets if one not in used]
        return self.is_token(token) or bool(used)

    def is_token(self, token: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def accepts_cookies(self, cookies: str) -> bool:
        """Whether a request's cookies contain the token."""
        # Not by http.cookies, whose time grows with the square of a quoted value's length.
        pairs = (pair.partition("=") for pair in cookies.split(";"))
        return any(name.strip() == self.cookie and self.is_token(value) for name, _, value in pairs)

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def is_own_host(self, name: str, port: int) -> bool:
        """Whether a Host field names this server; if not, it may be a DNS rebinding attack."""
        if port != self.port:
            return False
        if name in LOOPBACK or name == self.host.lower():
            return True
        return self.host in ANYWHERE and (_is_address(name) or name in self._own_names)

    @cached_property
    def _own_names(self) -> set[str]:
        """Asked for once: finding the full name may take seconds."""
        return {socket.gethostname().lower(), socket.getfqdn().lower()}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
