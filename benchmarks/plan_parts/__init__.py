"""Parts of benchmarks/plan.py."""
