"""Profile to cost table: what each instruction costs, in the words of XLA's scheduler."""
