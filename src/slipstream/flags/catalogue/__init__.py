"""Every flag of every supported jaxlib, and what happened to it."""
