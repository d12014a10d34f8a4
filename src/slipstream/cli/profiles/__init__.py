"""Commands that read profiles."""
