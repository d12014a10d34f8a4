"""Tune: which settings pay for a program on a machine, and when to stop looking."""
