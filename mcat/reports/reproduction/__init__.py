"""The report of `mcat reproduce`."""
