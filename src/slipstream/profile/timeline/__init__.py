"""Device time along the clock: segments, steps and what runs at the same time."""
