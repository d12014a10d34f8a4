"""Programs that XLA compiled: predictions, orders, studies and plans."""
