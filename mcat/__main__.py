"""`python -m mcat`."""

from mcat.cli import main

main()
