"""What `slipstream flags` prints, one file a command."""
