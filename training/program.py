"""What is trained: the user's model, data and loss, and how they are found."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coplace.instances.errors import InputError, Problem


@dataclass(frozen=True)
class Program:
    """A model with its data and loss.

    Attributes:
        model: a ``torch.nn.Module``. Its parameters are float32 while it is trained.
        data: the training set: a tuple of tensors of equal length, or a map-style data set
            (``len`` and ``[index]``, or ``__getitems__``), whose samples are pairs of input and target.
        loss: ``loss(output, target)``, the *mean* over the samples, a tensor of one element.
        validation: a set of the same kind as ``data``; None = nothing is validated.
        accuracy: ``accuracy(output, target)``, the mean over the samples as a number; default: the share of samples
            whose largest output is the target.
        forward: ``forward(model, input)``; default: ``model(input)``.
    """

    model: Any
    data: Any
    loss: Callable[[Any, Any], Any]
    validation: Any = None
    accuracy: Callable[[Any, Any], float] = field(default=lambda output, target: share_of_hits(output, target))
    forward: Callable[[Any, Any], Any] = field(default=lambda model, inputs: model(inputs))


def share_of_hits(output: Any, target: Any) -> float:
    """The share of samples whose largest output is the target; shapes (n, classes, ...) and (n, ...)."""
    return float((output.argmax(dim=1) == target).float().mean())


def size_of(data: Any) -> int:
    """Number of samples."""
    return len(data[0]) if isinstance(data, tuple) else len(data)


def samples_at(data: Any, indices: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Input and target of the samples at *indices* (int64), as batches."""
    import torch

    at = torch.from_numpy(np.array(indices, np.int64))
    if isinstance(data, tuple):
        inputs, target = (tensor[at] for tensor in data)
        return inputs, target
    if isinstance(data, torch.utils.data.TensorDataset):
        inputs, target = (tensor[at] for tensor in data.tensors)
        return inputs, target
    each = indices.tolist()
    several = getattr(data, "__getitems__", None)
    samples: Sequence[Any] = several(each) if several else [data[index] for index in each]
    inputs, target = torch.utils.data.default_collate(list(samples))
    return inputs, target


def check_program(name: str) -> None:
    """Find the program without running it, and without PyTorch.

    Raises:
        InputError: there is no such file or module, or it is no Python.
    """
    module_name, _, _ = name.rpartition(":")
    if not module_name.endswith(".py"):
        top = module_name.partition(".")[0]
        if importlib.util.find_spec(top) is None and importlib.machinery.PathFinder.find_spec(top, [""]) is None:
            raise _problem(name, f"there is no module {top}")
        return
    try:
        compile(Path(module_name).read_bytes(), Path(module_name).name, "exec")
    except OSError as error:
        raise _problem(name, f"cannot be read: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise _problem(name, f"cannot be imported: {type(error).__name__}: {error}") from None


def described(error: Exception, module_name: str) -> str:
    """Kind and text of an error on one line, and where in the user's program it was, if it was there."""
    folder = str(Path(module_name).parent) if module_name.endswith(".py") else ""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if folder and _lies_in(frame, folder)]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}{where}".split())


def _lies_in(frame: traceback.FrameSummary, folder: str) -> bool:
    return str(Path(frame.filename).parent) == folder


def load_program(name: str, arguments: Mapping[str, Any]) -> Program:
    """Call the function that *name* (``package.module:function`` or ``file.py:function``) stands for.

    Raises:
        InputError: there is no such function, it fails, or it returns something else than a Program.
    """
    module_name, _, function_name = name.rpartition(":")
    try:
        module = _file(Path(module_name)) if module_name.endswith(".py") else importlib.import_module(module_name)
    except Exception as error:
        raise _problem(name, f"cannot be imported: {described(error, module_name)}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise _problem(name, f"{module_name} has no function {function_name}")
    try:
        program = function(**arguments)
    except Exception as error:
        raise _problem(name, f"the function failed: {described(error, module_name)}") from error
    if not isinstance(program, Program):
        raise _problem(name, f"the function must return a coplace.training.Program, not {type(program).__name__}")
    if size_of(program.data) == 0:
        raise _problem(name, "the training set is empty")
    return program


def _file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    name = f"coplace_program_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent)  # so that it finds what lies beside it, as a script would
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module


def _problem(name: str, rule: str) -> InputError:
    return InputError([Problem("program", " ".join(rule.split()), name)])
