"""Candidates compiled and simulated."""
