"""`mcat` and `python -m mcat`: Ctrl-C is quiet even while the first modules are imported."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from mcat.cli import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
