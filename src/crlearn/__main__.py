"""Entry point of the command ``crlearn`` and of ``python -m crlearn``."""

from __future__ import annotations

import sys

from crlearn.exceptions import MissingExtraError


def main() -> None:
    """Run the command line."""
    try:
        from crlearn.cli import app
    except MissingExtraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # so soon that no command has begun
        print("warning: interrupted.", file=sys.stderr)
        sys.exit(130)
    app(prog_name="crlearn")


if __name__ == "__main__":
    main()
