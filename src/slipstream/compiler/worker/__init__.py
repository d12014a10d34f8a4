"""The process in which XLA compiles."""
