"""Results as text, JSON, HTML and other files."""
