"""One file for each problem that a diagnosis looks for."""
