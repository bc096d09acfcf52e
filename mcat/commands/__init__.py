"""The commands of `mcat`: parse, call one function, print."""
