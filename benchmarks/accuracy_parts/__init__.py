"""The parts of docs/accuracy.md, one file each."""
