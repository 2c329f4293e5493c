"""What several commands do with their options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coplace.instances import Instance


@contextlib.contextmanager
def named_as_options(**names: str) -> Iterator[None]:
    """Say what is wrong with an argument of a function of the option that it came from.

    *names* are those whose option is called otherwise: ``time_limit`` becomes ``--time-limit`` by itself.
    """
    from coplace.instances.errors import InputError, Problem

    try:
        yield
    except InputError as error:
        if error.source:
            raise
        raise InputError(
            Problem(names.get(p.place, f"--{p.place.replace('_', '-')}"), p.rule, p.found, p.mend)
            for p in error.problems
        ) from None


def check_goal(goal: str | None) -> None:
    """Refuse a goal that does not exist; raises :class:`InputError`."""
    from coplace.instances import GOALS, InputError, Problem
    from coplace.instances.consistency import near

    if goal is not None and goal not in GOALS:
        rule = f"must be one of {', '.join(GOALS)}"
        raise InputError([Problem("--goal", rule, repr(goal), near(goal, GOALS))])


def with_goal(instance: Instance, goal: str | None) -> Instance:
    """*instance* with another goal, which is known to exist; None leaves it as it is."""
    return instance if goal is None else instance.model_copy(update={"goal": goal})
