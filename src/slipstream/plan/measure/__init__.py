"""Combinations of a plan timed on the devices that are here."""
