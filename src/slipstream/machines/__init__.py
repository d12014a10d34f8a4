"""Hardware facts: GPUs, how they are wired, and how long work takes on them."""
