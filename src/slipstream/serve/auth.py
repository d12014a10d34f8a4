"""Who may ask: those who have the token, under a name that is this machine's."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANYWHERE = ("0.0.0.0", "::", "")


class Guard:
    """One server's secret, and the names it goes by."""

    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        self.host, self.port = host, port
        self.token = token or secrets.token_urlsafe(24)
        # Ports share their cookies, so that each server needs a name of its own.
        self.cookie = f"slipstream-{port}"
        self._tickets: list[str] = []

    def ticket(self) -> str:
        """A token that opens once: for command lines, which everyone on a machine can read."""
        self._tickets.append(secrets.token_urlsafe(24))
        return self._tickets[-1]

    def opens(self, token: str) -> bool:
        """Whether this is the token, or a ticket that nobody has used."""
        used = [one for one in self._tickets if hmac.compare_digest(token.encode(), one.encode())]
        self._tickets = [one for one in self._tickets if one not in used]
        return self.knows(token) or bool(used)

    def knows(self, token: str) -> bool:
        """Whether this is the token, found out in the same time for any other."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def admits(self, cookies: str) -> bool:
        """Whether a request's cookies hold the token."""
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and self.knows(found.value)

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def is_own_name(self, header: str) -> bool:
        """Whether a Host header names this server: another name is a page that rebinds DNS."""
        name, port = _split(header)
        if port != self.port:
            return False
        if name in LOOPBACK or name == self.host.lower():
            return True
        if self.host not in ANYWHERE:
            return False
        own = {socket.gethostname().lower(), socket.getfqdn().lower()}
        return _is_address(name) or name in own


def _split(header: str) -> tuple[str, int]:
    """Name and port of a Host header; HTTP's own port where it has none."""
    name, _, port = header.strip().lower().rpartition(":")
    if not name or not port.isdigit():
        name, port = header.strip().lower(), "80"
    return name.strip("[]"), int(port)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
