"""Files to Profile and Program; only this room knows file formats."""
