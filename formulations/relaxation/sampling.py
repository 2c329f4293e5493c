"""Prices where choices are millions: a sample of the jobs shares the same share of the cluster and agrees on prices.

Prices are few and jobs many, so that prices of some hundred jobs, drawn evenly from all kinds of them, are nearly those
of all: the bound is off by the square of how far they are. A larger sample then starts from what the first has found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from coplace.formulations.relaxation.choices import Choices
from coplace.formulations.relaxation.generation import Program

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MANY_CHOICES = 100_000
"""Choices above which prices come from samples of the jobs."""

FIRST_SAMPLE, SECOND_SAMPLE = 400, 2_000
"""Jobs in the samples; with fewer jobs all are taken."""

ROUGH_SAMPLE, ROUGH_SAMPLES = 500, 2
"""Jobs in each of the samples for rough prices, and how many there are. Means over samples guide the making of a plan
better than one sample of all these jobs, and take less time."""

MOST_CLASSES = 100
"""Classes of nodes in such a program, about; where most nodes differ, prices come from means of similar ones."""

SAMPLE_GAP = 1e-4
"""Relative gap to which the programs over samples are solved: the samples themselves are off by more."""


def prices_of_many(program: Program, warm: Floats | None, rough: bool, stopped: Callable[[], bool]) -> Floats:
    """Prices by [row] whose bound is within about a thousandth of the best one.

    Args:
        program: over all choices.
        warm: prices to start from; they take the place of the first sample.
        rough: whether the means over some small samples will do.
        stopped: whether the best so far will do.
    """
    if warm is None and rough:
        several = [
            _sampled(program, ROUGH_SAMPLE, part, ROUGH_SAMPLES).best_prices(SAMPLE_GAP, stopped=stopped)
            for part in range(ROUGH_SAMPLES if len(program.choices.positions) > ROUGH_SAMPLE else 1)
        ]
        return np.asarray(np.mean(several, axis=0))
    prices = _sampled(program, FIRST_SAMPLE).best_prices(SAMPLE_GAP, stopped=stopped) if warm is None else warm
    if stopped():
        return prices
    found = _sampled(program, SECOND_SAMPLE).best_prices(SAMPLE_GAP, prices, stopped)
    return min((prices, found), key=lambda each: program.bound(each, program.pricing.reduced(each)[1]))


def _sampled(program: Program, size: int, part: int = 0, parts: int = 1) -> Program:
    """The program over *size* of the jobs, with their share of all supplies, and of nodes that are alike one class."""
    choices = program.choices
    some = sample(choices, size, part, parts)
    share = len(some) / len(choices.positions)
    supply, nodes = pooled(program.supply, program.size)
    if share == 1 and len(nodes) == len(program.size):
        return program
    few = choices.of_jobs(some)
    # That a job must be kept is a matter of the whole cluster: its share of it may have no room.
    few = replace(few, jobs=replace(few.jobs, must_keep=np.zeros(len(some), dtype=bool)))
    moves = np.array([row.kind == "moves" for row in program.rows], dtype=bool)
    counted, counted_here = choices.jobs.counts_as_move.sum(), few.jobs.counts_as_move.sum()
    fixed = np.where(moves, (program.fixed + counted) * share - counted_here, program.fixed * share)
    return Program(few, program.rows, program.groups, supply, fixed, nodes * share)


def pooled(supply: Floats, size: Floats, most: int = MOST_CLASSES) -> tuple[Floats, Floats]:
    """Supply by [row, class, level] and sizes of about *most* classes in place of many, each the mean of similar ones.

    Classes are similar if they offer something in the same rows and about the same share of what the best one offers.
    """
    classes = len(size)
    if classes <= most:
        return supply, size
    offers = supply[:, :, 0]  # at the lowest level, of which every row takes something
    _, kind = np.unique(offers > 0, axis=1, return_inverse=True)
    share = offers / np.maximum(offers.max(axis=1, keepdims=True), 1e-9)
    order = np.lexsort((share.sum(axis=0), kind))
    part = np.arange(classes) * most // classes
    first = np.flatnonzero(np.diff(kind[order], prepend=-1) | np.diff(part, prepend=-1))
    total = np.add.reduceat(size[order], first)
    mean = np.add.reduceat((supply * size[:, None])[:, order], first, axis=1) / total[:, None]
    return mean, total


def sample(choices: Choices, size: int, part: int = 0, parts: int = 1) -> Ints:
    """Up to *size* jobs, ascending, spread evenly over the kinds of jobs; the same for the same choices.

    Of several samples each takes others, as far as there are enough.
    """
    count = len(choices.positions)
    if count <= size:
        return np.arange(count)
    jobs = [choices.instance.jobs[j] for j in choices.positions.tolist()]
    tenants = {tenant: i for i, tenant in enumerate(sorted({job.tenant for job in jobs}))}
    order = np.lexsort((
        np.random.default_rng(0).random(count),
        choices.most_value,
        np.array([tenants[job.tenant] for job in jobs]),
        choices.jobs.counts_as_move,
        choices.jobs.worker_gpu,
    ))  # fmt: skip
    return np.sort(order[(np.arange(size) * parts + part) * count // (size * parts)])
