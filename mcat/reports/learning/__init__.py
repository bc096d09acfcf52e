"""The report of `mcat plot`."""
