"""The report of `mcat translate`."""
