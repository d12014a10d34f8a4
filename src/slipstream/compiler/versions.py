"""Installed versions, from package metadata, without importing jax."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from slipstream.errors import Missing, missing_extra
from slipstream.jaxhooks.compat import warn_if_untested

PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
TPU_PLUGIN = "libtpu"


@lru_cache(maxsize=2)
def installed_versions(kind: str = "gpu") -> dict[str, str]:
    """Versions of Python, jax, jaxlib and the plugin for GPUs or TPUs; Missing if one is absent."""
    extra, purpose = {
        "gpu": ("compiler", "compiling for GPUs"),
        "tpu": ("tpu", "compiling for TPUs"),
    }[kind]
    found = {"python": platform.python_version()}
    for package in ("jax", "jaxlib"):
        release = _release(package)
        if release is None:
            raise missing_extra(package, extra, purpose)
        found[package] = release
    plugins = (TPU_PLUGIN,) if kind == "tpu" else PLUGINS
    plugin = next((name for name in plugins if _release(name)), None)
    if plugin is None:
        raise missing_extra(plugins[0], extra, purpose)
    found[plugin] = _release(plugin) or ""
    if kind == "gpu":
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
