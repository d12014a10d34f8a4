"""Checks of this machine and its environment."""
