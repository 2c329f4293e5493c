"""What a result file says of bounds and gaps, and what follows from the instance, the plan and the prices alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coplace.instances import Instance
    from coplace.solver.result_file import ResultFile

TOLERANCE = 1e-6
"""Relative difference up to which two bounds, and difference up to which two gaps, are the same."""


@dataclass
class Claims:
    """Bounds and gaps that a file states.

    Attributes:
        stated: what the file states.
        objective: the objective, recomputed.
        bound, gap: recomputed from the prices; None without prices.
        wrong: what the file states and does not follow, by key; the value says why.
    """

    stated: ResultFile
    objective: float
    bound: float | None = None
    gap: float | None = None
    wrong: dict[str, str] = field(default_factory=dict)

    def document(self, comparable: bool) -> dict[str, Any]:
        """What is recomputed, what is stated, and whether they agree; null where the goals differ."""
        stated = self.stated
        return {
            "certified_bound": self.bound,
            "certified_gap": self.gap,
            "stated_bound": stated.bound,
            "stated_gap": stated.gap,
            "stated_certified_bound": stated.certified_bound,
            "stated_certified_gap": stated.certified_gap,
            "claims_hold": not self.wrong if comparable else None,
            "wrong_claims": [{"key": key, "reason": why} for key, why in self.wrong.items()] if comparable else [],
        }

    def lines(self, comparable: bool) -> list[str]:
        """The same for people: a line for the certificate, and one for each claim that is wrong."""
        from coplace.cli.report.numbers import share

        found = []
        if self.bound is not None and self.gap is not None:
            line = f"no plan is worth more than {self.bound:.9g}, by the prices in the file: gap {share(self.gap)}"
            agrees = comparable and not {"certified_bound", "certified_gap"} & self.wrong.keys()
            as_stated = self.stated.certified_bound is not None and agrees
            found.append(f"{line}, as the file states" if as_stated else line)
        return found + [f"{key}: {why}" for key, why in self.wrong.items() if comparable]


def claims_of(instance: Instance, objective: float, stated: ResultFile) -> Claims:
    """Hold what a file states against what follows; a solver's own bound can only be held against the objective."""
    from coplace.instances import InputError
    from coplace.solver.certificate import certify, gap_to

    claims = Claims(stated, objective)
    wrong = claims.wrong
    if stated.prices is not None:
        try:
            claims.bound = certify(instance, stated.prices)
            claims.gap = gap_to(claims.bound, objective)
        except InputError as error:
            wrong["prices"] = f"no bound follows from them: {error.problems[0]}"
    if stated.bound is not None and stated.bound < objective - TOLERANCE * abs(objective):
        wrong["bound"] = f"the file states {stated.bound:.9g}, which is below the objective"
    _compare(wrong, "gap", stated.gap, None if stated.bound is None else gap_to(stated.bound, objective), 1.0)
    if "prices" not in wrong:
        _compare(wrong, "certified_bound", stated.certified_bound, claims.bound, abs(claims.bound or 0.0))
        _compare(wrong, "certified_gap", stated.certified_gap, claims.gap, 1.0)
    return claims


def _compare(wrong: dict[str, str], key: str, stated: float | None, found: float | None, scale: float) -> None:
    """Note a claim that differs from what was found, or that nothing stands behind."""
    if stated is None:
        return
    if found is None:
        wrong[key] = f"the file states {stated:.9g}, and nothing that it follows from"
    elif abs(stated - found) > TOLERANCE * scale:
        wrong[key] = f"the file states {stated:.9g}, and {found:.9g} follows"
