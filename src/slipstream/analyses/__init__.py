"""Profile in, one result out; results know nothing of how they are shown."""
