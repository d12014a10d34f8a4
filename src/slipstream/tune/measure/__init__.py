"""Candidates timed on real devices."""
