"""All commands in one application.

What a command needs is imported when it runs: ``coplace --version`` and ``--help`` load neither pydantic nor NumPy.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from coplace import __version__
from coplace.cli.check import check
from coplace.cli.explain import explain
from coplace.cli.generate import generate
from coplace.cli.importing import import_kubernetes, import_openb
from coplace.cli.job import checkpoint, join, leave, resize, slow, status, stop
from coplace.cli.methods import methods
from coplace.cli.node import node
from coplace.cli.output import discard, emit, note
from coplace.cli.schema import schema
from coplace.cli.solve import solve
from coplace.cli.train import train

EXIT_CODES = (
    "Exit codes: 0 done; 1 a defect of coplace, or a training job that could not go on; 2 wrong options or input, said "
    "on standard error; 3 the checked plan breaks a rule or its objective is another one; 130 interrupted while "
    "reading, or twice."
)


def _print_help(ctx: Any, param: Any, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        emit(f"{ctx.get_help()}\n")
        ctx.exit()


class _Help:
    """Prints help as everything else is printed; Typer would show a traceback where standard output is full."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.callback = _print_help
        return option


class _Command(_Help, TyperCommand):
    pass


class _Group(_Help, TyperGroup):
    pass


class _Commands(_Group):
    """Turns what is wrong with the input into a line on standard error each and an exit code."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _input_errors_told():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _input_errors_told():
            return super().invoke(ctx)


@contextlib.contextmanager
def _input_errors_told() -> Iterator[None]:
    try:
        yield
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
imports = typer.Typer(cls=_Group, no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES)
job = typer.Typer(cls=_Group, no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES)


def _version(wanted: bool) -> None:
    if wanted:
        emit(f"coplace {__version__}\n")
        raise typer.Exit


@app.callback()
def _coplace(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    """Decide how many tasks each training job gets, and where they run: counts and placement in one decision."""


for _function in (solve, check, explain, generate, schema, methods, train, node):
    app.command(cls=_Command, epilog=EXIT_CODES)(_function)
app.add_typer(imports, name="import", help="Turn the records of other systems into an instance file.")
imports.command("openb", cls=_Command, epilog=EXIT_CODES)(import_openb)
imports.command("kubernetes", cls=_Command, epilog=EXIT_CODES)(import_kubernetes)
app.add_typer(job, name="job", help="See and change a training job that runs.")
for _verb in (status, resize, checkpoint, stop, slow, join, leave):
    job.command(cls=_Command, epilog=EXIT_CODES)(_verb)


def run() -> int:
    """Run the command line on ``sys.argv``; the exit code."""
    try:
        return app(prog_name="coplace", standalone_mode=False) or 0
    except typer.Abort:
        return 130
    except Exception as error:
        show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
        if show is None or code is None:
            raise
        try:  # wrong options; Typer itself would fall over a standard error that is full
            show()
        except OSError:
            discard(sys.stderr)
        return int(code)
