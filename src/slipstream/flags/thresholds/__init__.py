"""Combine thresholds computed from the size of a model's layers."""
