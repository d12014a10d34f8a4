"""The search on a Ray cluster."""
