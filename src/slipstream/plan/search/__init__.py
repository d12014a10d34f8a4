"""Combinations evaluated: bounds, the real compiler and the simulation."""
