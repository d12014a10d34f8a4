"""Settings where people write them: one module for each way of writing."""
