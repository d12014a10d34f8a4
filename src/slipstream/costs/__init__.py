"""Profile to cost table: the cost of each instruction, under the names XLA's scheduler uses."""
