"""How long instructions of a program for TPUs take: on the cores, over links, between slices."""
