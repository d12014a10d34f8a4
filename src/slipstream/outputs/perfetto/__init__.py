"""A profile as a Perfetto trace."""
