"""XPlane files, as JAX's profiler writes them."""
