"""Results as text: one file for each command."""
