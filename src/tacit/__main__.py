"""The ``tacit`` command and ``python -m tacit``: to be interrupted while it is imported, too."""

import sys


def main() -> None:
    """Run the command line: exit 0 when done, 1 when a gate is crossed, 2 on bad input."""
    try:
        from tacit.cli import main as command

        command()
    except KeyboardInterrupt:
        print("tacit: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
