"""Links over time: bandwidth, latency, slack and known problems."""
