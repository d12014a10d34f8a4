"""Checks of this machine and its environment, for `slipstream doctor`."""
