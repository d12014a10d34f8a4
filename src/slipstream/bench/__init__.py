"""A function or a job timed on its own."""
