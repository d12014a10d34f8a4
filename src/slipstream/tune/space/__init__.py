"""The search space: knobs and their values."""
