"""`slipstream tune`: a search for the settings that make a program fastest on a machine."""
