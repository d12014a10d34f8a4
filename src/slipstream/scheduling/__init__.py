"""PROGRAM + COSTS → ORDER: a better schedule than XLA's, searched against the simulator."""
