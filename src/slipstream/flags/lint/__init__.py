"""Settings checked and corrected."""
