"""Profiles of many hosts, read one after the other."""
