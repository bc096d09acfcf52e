"""Policies as files, and by name."""
