"""Did a transfer help, and can it be trusted? The report of `mcat translate`."""
