"""Installed versions, from package metadata, without importing jax."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from slipstream.errors import Missing, missing_extra
from slipstream.jaxhooks.compat import warn_if_untested

PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
_PURPOSE = "compiling for GPUs"


@lru_cache(maxsize=1)
def installed_versions() -> dict[str, str]:
    """Versions of Python, jax, jaxlib and the GPU plugin; Missing if one is not installed."""
    found = {"python": platform.python_version()}
    for package in ("jax", "jaxlib"):
        release = _release(package)
        if release is None:
            raise missing_extra(package, "compiler", _PURPOSE)
        found[package] = release
    plugin = next((name for name in PLUGINS if _release(name)), None)
    if plugin is None:
        raise missing_extra(PLUGINS[0], "compiler", _PURPOSE)
    found[plugin] = _release(plugin) or ""
    _check_fit(found["jaxlib"], plugin, found[plugin])
    warn_if_untested(found["jax"])
    return found


def _check_fit(jaxlib: str, plugin: str, release: str) -> None:
    """JAX ignores a plugin of another release, and then supports no GPU."""
    if _numbers(jaxlib) != _numbers(release):
        raise Missing(
            f"{plugin} {release} does not match jaxlib {jaxlib}: JAX only uses a plugin of its own "
            f"release; install it with: pip install '{plugin}=={jaxlib}'"
        )


def _release(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _numbers(release: str) -> list[str]:
    return re.findall(r"\d+", release)[:3]
