"""What an instruction means: its name, category, work and origin."""
