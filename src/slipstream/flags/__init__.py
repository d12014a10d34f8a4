"""Flags and environment: what XLA and JAX can be told, for which jaxlib, and what it does."""
