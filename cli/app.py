"""All commands in one application.

What a command needs is imported when it runs: ``coplace --version`` and ``--help`` load neither pydantic nor NumPy.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from coplace import __version__
from coplace.cli.check import check
from coplace.cli.generate import generate
from coplace.cli.importing import import_kubernetes, import_openb
from coplace.cli.methods import methods
from coplace.cli.output import note
from coplace.cli.schema import schema
from coplace.cli.solve import solve

EXIT_CODES = (
    "Exit codes: 0 done; 1 a defect of coplace; 2 wrong options or input, said on standard error; "
    "3 the checked plan breaks a rule or its objective is another one; 130 interrupted while reading, or twice."
)


class _Commands(TyperGroup):
    """Turns what is wrong with the input into a line on standard error each and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except Exception as error:
            # Looked up, since importing it would cost a fifth of a second where it cannot have been raised.
            known = sys.modules.get("coplace.instances.errors")
            if known is None or not isinstance(error, known.InputError):
                raise
            for line in str(error).splitlines():
                note(f"coplace: {line}")
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # names with [brackets] stay as they are, and help appears at once
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
)
imports = typer.Typer(no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coplace {__version__}")
        raise typer.Exit


@app.callback()
def _coplace(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    """Decide how many tasks each training job gets, and where they run: counts and placement in one decision."""


app.command(epilog=EXIT_CODES)(solve)
app.command(epilog=EXIT_CODES)(check)
app.command(epilog=EXIT_CODES)(generate)
app.add_typer(imports, name="import", help="Turn the records of other systems into an instance file.")
imports.command("openb", epilog=EXIT_CODES)(import_openb)
imports.command("kubernetes", epilog=EXIT_CODES)(import_kubernetes)
app.command(epilog=EXIT_CODES)(schema)
app.command(epilog=EXIT_CODES)(methods)
