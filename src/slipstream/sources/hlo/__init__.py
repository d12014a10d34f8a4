"""HLO text and protos into a Program."""
