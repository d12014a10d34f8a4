"""Hardware: GPUs, their links and networks, and models of how long work takes on them."""
