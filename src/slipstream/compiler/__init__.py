"""The real XLA GPU compiler as a library: compiles for any GPU cluster without a GPU."""
