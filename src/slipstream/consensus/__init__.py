"""Decisions that all ranks of a job take together."""
