"""The search: candidates proposed, compiled and simulated."""
