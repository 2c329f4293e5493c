"""A worker: computes gradients of the samples that the coordinator hands it, from the parameters of the servers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch

from coplace.instances.errors import InputError, Problem
from coplace.training.data.permutation import order
from coplace.training.job import TopK
from coplace.training.messages import Message
from coplace.training.parameters.codecs import codec, decode
from coplace.training.parameters.flat import FlatModel
from coplace.training.program import described, load_program, samples_at, size_of
from coplace.training.tasks.spec import TaskSpec
from coplace.training.transport import Endpoint

VALIDATION_CHUNK = 1024
"""Samples that are validated at once."""


@dataclass(slots=True)
class Push:
    """A gradient that no commit has been heard of yet; it stays in the model's flat gradient until the next step."""

    step: int
    generation: int


class Worker:
    """Answers messages until it is told to stop.

    ========== ================================================== =======================================
    message    fields; arrays                                     does
    ========== ================================================== =======================================
    layout     generation, servers [[address, start, stop]],      learns the servers; pushes again what is not
               rollback, again (step)                             committed, or drops it after a rollback
    work       ticket, step, version, epoch, spans, threads,      once it has all parameters of the ticket:
               validate                                           computes, pushes, reports ``pushed``
    parameters ticket, start, stop, codec; values                 keeps them, until there is newer work
    initial                                                       answers ``initial`` with the initial state
    delay      seconds                                            makes each step so much longer (tests)
    stop                                                          ends
    ========== ================================================== =======================================
    """

    def __init__(self, spec: TaskSpec, endpoint: Endpoint) -> None:
        self._spec = spec
        self._endpoint = endpoint
        self._coordinator = spec.meeting.coordinator
        job = spec.job
        torch.set_num_threads(1 if job.threads == "auto" else job.threads)
        _warm_up()
        torch.manual_seed(job.seed)
        self._program = load_program(job.program, job.arguments)
        torch.manual_seed(job.seed * 1_000_003 + spec.number + 1)
        self._flat = FlatModel(self._program.model)
        self._total = self._flat.layout.total
        ratio = job.compression.ratio if isinstance(job.compression, TopK) else 1.0
        self._codec = codec(job.compression.name, self._flat.layout.parameters, self._total, ratio)
        self._generation = -1
        self._servers: list[tuple[str, int, int]] = []
        self._work: dict[str, Any] | None = None
        self._parameters: dict[int, list[Message]] = {}
        self._push: Push | None = None
        self._void = False  # whether what is being computed belongs to a state that was rolled back
        self._delay = 0.0
        self._orders: dict[int, np.ndarray[Any, Any]] = {}
        self._process = psutil.Process()
        self._idle_since = time.perf_counter()

    def run(self) -> None:
        """Work until told to stop."""
        validation = self._program.validation
        self._tell(
            "ready",
            {
                "address": self._endpoint.address,
                "pid": self._process.pid,
                "layout": self._flat.layout.to_document(),
                "samples": size_of(self._program.data),
                "validation": 0 if validation is None else size_of(validation),
            },
        )
        while True:
            message = self._endpoint.receive(5.0)
            if message is not None:
                if message.kind == "stop":
                    return
                getattr(self, f"_on_{message.kind}")(message)
            if self._work is not None and self._complete(self._work["ticket"]):
                work, self._work = self._work, None
                if not self._do(work):
                    return

    # --- messages ---

    def _on_layout(self, message: Message) -> None:
        fields = message.fields
        self._generation = fields["generation"]
        self._servers = [(address, start, stop) for address, start, stop in fields["servers"]]
        if fields["rollback"]:
            self._push = self._work = None
            self._void = True
            self._codec.reset()
        elif self._push is not None and self._push.generation != self._generation:
            if self._push.step == fields["again"]:
                self._send_push(self._push.step)
            else:  # it was committed, and there has been no work since
                self._push = None

    def _on_work(self, message: Message) -> None:
        self._work = message.fields
        self._push = None  # whoever gets work has had its last push committed
        for ticket in [ticket for ticket in self._parameters if ticket < message.fields["ticket"]]:
            del self._parameters[ticket]

    def _on_parameters(self, message: Message) -> None:
        self._parameters.setdefault(message.fields["ticket"], []).append(message)

    def _on_initial(self, message: Message) -> None:
        self._tell("initial", {}, [self._flat.values])

    def _on_delay(self, message: Message) -> None:
        self._delay = message.fields["seconds"]

    def _complete(self, ticket: int) -> bool:
        slices = self._parameters.get(ticket, ())
        come = sum(message.fields["stop"] - message.fields["start"] for message in slices)
        return bool(come >= self._total)

    # --- a step ---

    def _do(self, work: dict[str, Any]) -> bool:
        """Do *work*; whether to go on."""
        idle = time.perf_counter() - self._idle_since
        self._void = False
        for message in self._parameters.pop(work["ticket"]):
            fields = message.fields
            values = decode(fields["codec"], message.arrays, fields["stop"] - fields["start"])
            self._flat.load(fields["start"], values)
        self._flat.ready()
        if work["threads"] != torch.get_num_threads():
            torch.set_num_threads(work["threads"])
        validated = 0.0
        if work["validate"]:
            began = time.perf_counter()
            self._tell("validated", {**work["validate"], **self._validate(work["validate"])})
            validated = time.perf_counter() - began
        if work["spans"]:
            began, busy = time.perf_counter(), time.process_time()
            loss, count = self._first_gradient(work) if work["version"] == 0 else self._gradient(work)
            if self._delay:
                time.sleep(self._delay)
            computed, cpu = time.perf_counter(), time.process_time() - busy
            if not self._heed():
                return False
            if not self._void:
                self._send_push(work["step"])
                self._tell(
                    "pushed",
                    {
                        "step": work["step"],
                        "samples": count,
                        "loss": loss,
                        "idle": idle,
                        "compute": computed - began,
                        "cpu": cpu,
                        "push": time.perf_counter() - computed,
                        "validate": validated,
                        "threads": torch.get_num_threads(),
                        "rss": self._process.memory_info().rss / 2**20,
                        "sent": self._endpoint.bytes_sent,
                        "received": self._endpoint.bytes_received,
                    },
                )
        self._idle_since = time.perf_counter()
        return True

    def _first_gradient(self, work: dict[str, Any]) -> tuple[float, int]:
        """As :meth:`_gradient`; what fails at the very first step is the program, and would fail again.

        Raises:
            InputError: it fails.
        """
        try:
            return self._gradient(work)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            name = self._spec.job.program
            rule = f"the first step failed: {described(error, name.rpartition(':')[0])}"
            raise InputError([Problem("program", rule, name)]) from error

    def _gradient(self, work: dict[str, Any]) -> tuple[float, int]:
        """Compute the gradient of the mean loss of the samples in *work*; the loss and their number."""
        program = self._program
        inputs, target = samples_at(program.data, self._indices(work["epoch"], work["spans"]))
        program.model.train()
        self._flat.zero_gradient()
        loss = program.loss(program.forward(program.model, inputs), target)
        loss.backward()
        return float(loss.detach()), sum(stop - start for start, stop in work["spans"])

    def _indices(self, epoch: int, spans: list[list[int]]) -> np.ndarray[Any, Any]:
        if epoch not in self._orders:
            self._orders = {known: value for known, value in self._orders.items() if known >= epoch - 1}
            self._orders[epoch] = order(size_of(self._program.data), self._spec.job.seed, epoch)
        positions = self._orders[epoch]
        return np.concatenate([positions[start:stop] for start, stop in spans])

    def _validate(self, part: dict[str, Any]) -> dict[str, float]:
        """Loss and accuracy of the samples from ``start`` to ``stop``, summed over the samples."""
        program = self._program
        program.model.eval()
        loss = accuracy = 0.0
        with torch.no_grad():
            for start in range(part["start"], part["stop"], VALIDATION_CHUNK):
                stop = min(start + VALIDATION_CHUNK, part["stop"])
                inputs, target = samples_at(program.validation, np.arange(start, stop))
                output = program.forward(program.model, inputs)
                loss += float(program.loss(output, target)) * (stop - start)
                accuracy += float(program.accuracy(output, target)) * (stop - start)
        return {"loss": loss, "accuracy": accuracy}

    def _heed(self) -> bool:
        """Read what came during the step, a new layout above all; whether to go on."""
        while (message := self._endpoint.receive(0.0)) is not None:
            if message.kind == "stop":
                return False
            getattr(self, f"_on_{message.kind}")(message)
        return True

    def _send_push(self, step: int) -> None:
        if self._push is None:
            self._codec.begin()
        else:
            self._codec.undo()
        update = self._flat.update()
        for address, start, stop in self._servers:
            fields = {
                "generation": self._generation,
                "worker": self._spec.name,
                "step": step,
                "codec": self._codec.name,
            }
            self._endpoint.send(address, "push", fields, self._codec.encode(start, update[start:stop]))
        self._push = Push(step, self._generation)

    def _tell(self, kind: str, fields: dict[str, Any], arrays: list[np.ndarray[Any, Any]] | None = None) -> None:
        self._endpoint.send(self._coordinator, kind, {"task": self._spec.name, **fields}, arrays or [])


def _warm_up() -> None:
    """Have PyTorch load what it loads at the first use, before others wait for the first step."""
    layer = torch.nn.Linear(2, 2)
    torch.nn.functional.cross_entropy(layer(torch.zeros(2, 2)), torch.zeros(2, dtype=torch.int64)).backward()
