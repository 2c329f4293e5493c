"""The entry point of the command ``coplace``."""

from __future__ import annotations


def main() -> int:
    """Run the command line on ``sys.argv``; returns or exits with the code that docs/command-line.md lists."""
    try:  # Ctrl-C may come while Python is still loading, and even then it deserves no traceback
        from coplace.cli.interrupts import end_on_termination

        end_on_termination()
        from coplace.cli.app import run
        from coplace.cli.output import prepare_streams

        prepare_streams()
        return run()
    except KeyboardInterrupt:
        return 130
