"""Recommended settings for kinds of jobs."""
