"""coplace: task counts and placement of deep-learning training jobs, decided together by optimisation.

    import coplace
    instance = coplace.read_instance("cluster.yaml")
    result = coplace.solve(instance)

The names below are loaded when they are first used, so that ``import coplace`` itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from coplace.formulations.evaluate import evaluate as evaluate
    from coplace.instances import Allocation as Allocation
    from coplace.instances import InputError as InputError
    from coplace.instances import Instance as Instance
    from coplace.instances import Job as Job
    from coplace.instances import Node as Node
    from coplace.instances import Plan as Plan
    from coplace.instances import parse_instance as parse_instance
    from coplace.instances import read_instance as read_instance
    from coplace.instances import write_instance as write_instance
    from coplace.instances.generation import generate as generate
    from coplace.solver import Result as Result
    from coplace.solver import RoundSolver as RoundSolver
    from coplace.solver import check as check
    from coplace.solver import solve as solve
    from coplace.solver.explain import explain as explain

_HOME = {
    "evaluate": "coplace.formulations.evaluate",
    "explain": "coplace.solver.explain",
    "generate": "coplace.instances.generation",
    **dict.fromkeys(
        ("Allocation", "InputError", "Instance", "Job", "Node", "Plan", "parse_instance", "read_instance",
         "write_instance"), "coplace.instances",
    ),
    **dict.fromkeys(("Result", "RoundSolver", "check", "solve"), "coplace.solver"),
}  # fmt: skip

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'coplace' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
