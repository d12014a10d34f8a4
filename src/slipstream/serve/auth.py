"""Access to the viewer: requests need its token and a Host header that names this machine."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie

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

    def ticket(self) -> str:
        """A token for one use, because every user of a machine can read command lines."""
        self._tickets.append(secrets.token_urlsafe(24))
        return self._tickets[-1]

    def accepts(self, token: str) -> bool:
        """Whether this is the token or an unused ticket; a ticket is then used."""
        used = [one for one in self._tickets if hmac.compare_digest(token.encode(), one.encode())]
        self._tickets = [one for one in self._tickets if one not in used]
        return self.is_token(token) or bool(used)

    def is_token(self, token: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def accepts_cookies(self, cookies: str) -> bool:
        """Whether a request's cookies contain the token."""
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and self.is_token(found.value)

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def is_own_host(self, header: str) -> bool:
        """Whether a Host header names this server; if not, it may be a DNS rebinding attack."""
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
    """Name and port of a Host header; port 80 if it has none."""
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
