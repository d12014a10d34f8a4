"""The worker process in which XLA runs."""
