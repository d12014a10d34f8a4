"""Files to Profile and Program; no other package knows file formats."""
