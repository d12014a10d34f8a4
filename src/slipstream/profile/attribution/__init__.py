"""Which instruction of the program each kernel and copy belongs to."""
