"""How do runs learn? The report of `mcat plot`."""
