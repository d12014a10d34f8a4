"""Which program to run on a machine: what a build function lets vary, and its combinations."""
