"""Another try for a test that met something else than it needs, and for no other failure."""


class RaceLost(Exception):
    """What the test is about did not come about; that says nothing about Slipstream."""
