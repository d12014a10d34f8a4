"""Check settings, and fix them."""
