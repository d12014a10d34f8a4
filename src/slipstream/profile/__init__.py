"""The model: a Profile (what happened) and a Program (what XLA compiled)."""
