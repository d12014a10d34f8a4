"""`slipstream run`: a job started, measured and left as it was."""
