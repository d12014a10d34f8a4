"""What a search may vary."""
