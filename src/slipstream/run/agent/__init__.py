"""Slipstream inside the job."""
