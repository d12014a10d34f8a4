"""The ways of grouping ops; a file of its own, so that a command can check its argument at once."""

GROUPINGS = ("instruction", "category", "phase", "scope", "source", "kernel")
