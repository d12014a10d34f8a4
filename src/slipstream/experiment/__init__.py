"""One program compiled in several ways, timed, and proven."""
