"""Two profiles compared."""
