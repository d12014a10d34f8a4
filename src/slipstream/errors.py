"""What can go wrong, as a tree; `cli.main` turns each leaf into its exit code.

    SlipstreamError
    ├── BadInput        exit 2   a file, argument or query that can't be used as it is
    ├── CheckFailed     exit 1   a gate or check that ran and said no
    └── Missing         exit 3   a dependency, tool or device that is not here

Every message says what was seen, what was expected, and what to type next.
"""


class SlipstreamError(Exception):
    """Any error that Slipstream raises on purpose."""

    exit_code = 2


class BadInput(SlipstreamError):
    """A file, argument or query that can't be used as it is."""

    exit_code = 2


class CheckFailed(SlipstreamError):
    """A gate or check that ran and said no."""

    exit_code = 1


class Missing(SlipstreamError):
    """A dependency, tool or device that is not here."""

    exit_code = 3


def missing_extra(package: str, extra: str, purpose: str) -> Missing:
    """The error for an optional package: what needs it, and the line that installs it."""
    return Missing(
        f"{purpose} needs the package {package}, which is not installed; "
        f"install it with: pip install 'slipstream[{extra}]'"
    )
