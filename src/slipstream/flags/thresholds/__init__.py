"""Combine thresholds computed from a model's layers."""
