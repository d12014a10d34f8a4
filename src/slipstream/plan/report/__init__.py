"""What a plan found: limits, ranking, reasons and scaling."""
