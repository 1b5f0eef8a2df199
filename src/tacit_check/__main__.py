"""The command: ``python -m tacit_check FILE…``."""

from tacit_check.command import main

if __name__ == "__main__":
    raise SystemExit(main())
