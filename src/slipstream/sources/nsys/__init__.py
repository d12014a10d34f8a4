"""Nsight Systems: SQLite exports, reports and nsys-jax archives."""
