"""What may vary: the choices of a build function, and their combinations on a machine."""
