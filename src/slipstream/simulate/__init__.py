"""Program and costs to timeline: a step simulated without running it."""
