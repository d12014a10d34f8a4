"""A trainer that is a package: `python -m trainer`."""
