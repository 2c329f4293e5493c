"""How bad input is reported: every problem names its place, the rule, what was found and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input.

    Attributes:
        place: where in the input, e.g. ``jobs[3].worker.gpu``; empty for the input as a whole.
        rule: the rule that was broken, as a sentence without a full stop.
        found: what stands there, shortened; empty if that says nothing more.
        mend: how to mend it; empty if the rule already says so.
    """

    place: str
    rule: str
    found: str = ""
    mend: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: {self.rule}" if self.place else self.rule
        if self.found:
            text += f"; found {self.found}"
        if self.mend:
            text += f"; {self.mend}"
        return text


class InputError(Exception):
    """Input that breaks the rules of its format; ``str()`` gives one line per problem.

    Deliberately no ``ValueError``: pydantic would wrap that and lose the places.
    """

    def __init__(self, problems: Iterable[Problem], source: str = "") -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.source = source
        super().__init__(str(self))

    def __str__(self) -> str:
        prefix = f"{self.source}: " if self.source else ""
        return "\n".join(f"{prefix}{problem}" for problem in self.problems)

    def located(self, source: str) -> InputError:
        """The same problems, said of the file *source*."""
        return InputError(self.problems, source)


def shorten(value: object, limit: int = 60) -> str:
    """What was found, on one line of at most *limit* characters."""
    if isinstance(value, dict | list | tuple) and len(value) > 8:
        return f"{type(value).__name__} of {len(value)} entries"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plain(number: float) -> str:
    """A limit as people write it: 1e-9, not 1e-09."""
    return f"{number:g}".replace("e+", "e").replace("e-0", "e-")
