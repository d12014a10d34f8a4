"""XLA flags and environment variables: what exists, what is set, what is wrong, what to set."""
