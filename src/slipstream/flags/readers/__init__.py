"""Readers of settings, one for each file format."""
