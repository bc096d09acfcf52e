"""What did the paper print, and what do we get? The report of `mcat reproduce`."""
