"""Real XLA as a library: targets compiled for any cluster of GPUs, with no GPU."""
