"""Where the user's caches are, by the XDG Base Directory Specification."""

from __future__ import annotations

import os


def user_cache(*parts: str) -> str | None:
    """A folder in $XDG_CACHE_HOME or ~/.cache; None without a home.

    Relative paths are ignored, as the specification says: caches would depend on the working
    folder, which others may write to.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    return os.path.join(cache, *parts) if os.path.isabs(cache) else None
