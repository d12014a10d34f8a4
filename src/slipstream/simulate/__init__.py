"""Program and costs to timeline: what a step would look like, without running it."""
