"""The exceptions that Slipstream raises; `cli.main` turns each into its exit code.

    SlipstreamError
    ├── CheckFailed     exit 1   a check that ran and failed
    ├── BadInput        exit 2   a file, argument or query that can't be used
    └── Missing         exit 3   a package, tool or device that is not available

Every message says what was found, what was expected, and which command to run next.
"""


class SlipstreamError(Exception):
    """Base class of all errors that Slipstream raises on purpose."""

    exit_code = 2


class BadInput(SlipstreamError):
    """A file, argument or query that can't be used."""

    exit_code = 2


class CheckFailed(SlipstreamError):
    """A check that ran and failed."""

    exit_code = 1


class Missing(SlipstreamError):
    """A package, tool or device that is not available."""

    exit_code = 3


def missing_extra(package: str, extra: str, purpose: str) -> Missing:
    """The error for a missing optional package: what needs it, and how to install it."""
    return Missing(
        f"{purpose} needs the package {package}, which is not installed; "
        f"install it with: pip install 'slipstream[{extra}]'"
    )
