"""Results as pages: one file of HTML each that needs nothing else and asks for nothing."""
