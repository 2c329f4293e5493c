"""A torch module whose parameters and gradients are one flat vector each, as in the buckets of torch's DDP."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coplace.instances.errors import InputError, Problem
from coplace.instances.files import replace_file
from coplace.training.parameters.layout import Layout

_LOG = logging.getLogger(__name__)

_EXACT = 2**24
"""Whole numbers up to this one have a float32 of their own."""


class FlatModel:
    """Re-homes a module's parameters and gradients in flat float32 vectors.

    The parameters become views into :attr:`values` and their ``.grad`` views into what :meth:`update` returns, so that
    neither is copied between training and the wire. Behind them stand, as copies, parameters that do not require a
    gradient and the buffers that the module saves (``persistent=False`` ones stay each worker's own). Whole numbers and
    booleans among the buffers are carried as floats and rounded when they come back.

    Parameters and buffers of other floating types are cast to float32 in *module* itself, and a warning says so. A
    parameter under several names counts once. What is frozen only later goes on to be trained with gradient zero.

    Attributes:
        module: the module given, changed as described.
        layout: where each tensor stands.
        values: float32 [layout.total], the current state: at first the module's own. A step of training leaves its
            part behind the parameters as it was loaded.

    Raises:
        InputError: names the parameter or buffer that cannot be carried: complex, sparse, not on the CPU, without a
            shape yet, or whole numbers that float32 cannot hold.
    """

    def __init__(self, module: Any) -> None:
        _require_floats(module)
        self.module = module
        named = list(module.named_parameters())
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        frozen = [(name, parameter) for name, parameter in named if not parameter.requires_grad]
        self._trained = trained
        self._carried = [(module, "", parameter) for _, parameter in frozen]
        buffers = _saved_buffers(module)
        self._carried += [(owner, name, None) for _, owner, name in buffers]
        tensors = [*trained, *frozen, *((full, owner._buffers[name]) for full, owner, name in buffers)]
        parameters = sum(parameter.numel() for _, parameter in trained)
        self.layout = Layout(
            parameters,
            sum(tensor.numel() for _, tensor in tensors) - parameters,
            tuple(name for name, _ in tensors),
            tuple(tuple(tensor.shape) for _, tensor in tensors),
        )
        self._flat = torch.empty(self.layout.total, dtype=torch.float32)
        self._update = torch.zeros(self.layout.total, dtype=torch.float32)
        self.values: NDArray[np.float32] = self._flat.numpy()
        self._changes: NDArray[np.float32] = self._update.numpy()
        self._gradients: list[Any] = []
        for (_, parameter), start in zip(trained, self.layout.starts, strict=False):
            place = self._flat[start : start + parameter.numel()].view(parameter.shape)
            place.copy_(parameter.detach())
            parameter.data = place
            gradient = self._update[start : start + parameter.numel()].view(parameter.shape)
            self._gradients.append(gradient)
            parameter.grad = gradient
        self._read_carried(self._flat[parameters:])
        _require_exact(self._carried_tensors(), self.layout)
        self._before = self._flat[parameters:].clone()

    def load(self, start: int, values: NDArray[np.float32]) -> None:
        """Copy *values* to positions *start* and following; buffers reach the module by :meth:`ready`.

        Raises:
            ValueError: they reach beyond the vector.
        """
        if start < 0 or values.ndim != 1 or start + len(values) > self.layout.total:
            raise ValueError(
                f"values of shape {values.shape} from position {start} on do not fit into {self.layout.total} floats"
            )
        self.values[start : start + len(values)] = values

    def ready(self) -> None:
        """Write the part behind the parameters into the module; from here on changes of buffers are counted."""
        start = self.layout.parameters
        with torch.no_grad():
            for tensor in self._carried_tensors():
                _write(tensor, self._flat[start : start + tensor.numel()].view(tensor.shape))
                start += tensor.numel()
        self._read_carried(self._before)

    def zero_gradient(self) -> None:
        """Set the whole gradient to zero, before the backward passes of a step."""
        self._update[: self.layout.parameters].zero_()
        for (_, parameter), gradient in zip(self._trained, self._gradients, strict=True):
            parameter.grad = gradient

    def update(self) -> NDArray[np.float32]:
        """The gradient, zero where there was none, and behind it the change of the buffers since :meth:`ready`.

        Returns:
            float32 [layout.total]; the same array at every call, in which the next backward pass accumulates.

        Raises:
            InputError: a gradient is sparse.
        """
        for (name, parameter), gradient in zip(self._trained, self._gradients, strict=True):
            if parameter.grad is not gradient:  # the program has set it to None or to a tensor of its own
                _adopt(name, parameter, gradient)
        tail = self._update[self.layout.parameters :]
        self._read_carried(tail)
        changed = tail != self._before
        changed &= ~(tail.isnan() & self._before.isnan())
        tail -= self._before
        tail.masked_fill_(~changed, 0.0)  # a mask of -inf has not changed, though -inf less -inf is not zero
        return self._changes

    def write(self, path: str | os.PathLike[str]) -> None:
        """Save the module's ``state_dict`` with safetensors; tied tensors are written under each of their names.

        Raises:
            OSError: the file cannot be written; nothing is left behind.
        """
        from safetensors.torch import save_file

        state = self.module.state_dict()
        tensors = {name: tensor.detach().clone() for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
        if len(tensors) < len(state):
            _LOG.warning("not written, being no tensors: %s", ", ".join(sorted(state.keys() - tensors.keys())))
        replace_file(path, lambda temporary: save_file(tensors, temporary))

    def _carried_tensors(self) -> list[Any]:
        """Tensors behind the parameters; asked for anew, as programs replace buffers rather than fill them."""
        return [tensor if tensor is not None else owner._buffers[name] for owner, name, tensor in self._carried]

    def _read_carried(self, into: Any) -> None:
        start = 0
        for tensor in self._carried_tensors():
            into[start : start + tensor.numel()].copy_(tensor.detach().reshape(-1))
            start += tensor.numel()


def _write(tensor: Any, values: Any) -> None:
    if tensor.dtype == torch.bool:
        tensor.copy_(values > 0.5)
    elif tensor.is_floating_point():
        tensor.copy_(values)
    else:
        tensor.copy_(values.round())


def _adopt(name: str, parameter: Any, gradient: Any) -> None:
    """Move the gradient of *parameter* to *gradient*, its place in the flat vector."""
    found = parameter.grad
    if found is None:
        gradient.zero_()
    elif found.layout != torch.strided:
        raise _refused(name, "must have a dense gradient", str(found.layout), "use sparse=False")
    elif found.data_ptr() != gradient.data_ptr():
        gradient.copy_(found)
    parameter.grad = gradient


def _saved_buffers(module: Any) -> list[tuple[str, Any, str]]:
    """Full name, owner and name of each buffer that ``state_dict`` has, each tensor once."""
    buffers = []
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is None or name in owner._non_persistent_buffers_set or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            buffers.append((f"{prefix}.{name}" if prefix else name, owner, name))
    return buffers


def _require_floats(module: Any) -> None:
    for name, owner in module.named_modules():
        if getattr(owner, "sparse", False) is True:
            raise _refused(name, "must have dense gradients", "sparse=True", "use sparse=False")
    cast = []
    for name, tensor in (*module.named_parameters(), *((name, o._buffers[b]) for name, o, b in _saved_buffers(module))):
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            mend = "run one batch through the module when building it"
            raise _refused(name, "must have its shape", "a lazy module", mend)
        if tensor.is_complex():
            raise _refused(name, "must be real numbers", str(tensor.dtype), "use torch.view_as_real of it")
        if tensor.device.type != "cpu":
            raise _refused(name, "must be on the CPU", str(tensor.device), "build the module without a device")
        if tensor.layout != torch.strided:
            raise _refused(name, "must be dense", str(tensor.layout), "use to_dense() of it")
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            cast.append(f"{name} ({str(tensor.dtype).removeprefix('torch.')})")
    if cast:
        _LOG.warning("trained as float32: %s%s", ", ".join(cast[:3]), f" and {len(cast) - 3} more" if cast[3:] else "")
        module.float()


def _require_exact(tensors: list[Any], layout: Layout) -> None:
    for name, tensor in zip(layout.names[len(layout.names) - len(tensors) :], tensors, strict=True):
        if tensor.is_floating_point() or tensor.dtype == torch.bool or not tensor.numel():
            continue
        least, most = int(tensor.min()), int(tensor.max())
        if max(-least, most) > _EXACT:
            found = str(least if -least > most else most)
            mend = "register it with persistent=False if it is the same everywhere"
            raise _refused(name, f"must be whole numbers up to {_EXACT}, which float32 can hold", found, mend)


def _refused(name: str, rule: str, found: str, mend: str) -> InputError:
    return InputError([Problem(f"model.{name}" if name else "model", rule, found, mend)])
