"""Results to text and files."""
