"""The flat vector of a model: layout, shards, codecs, and the optimiser of a shard against torch's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import nn

from coplace.instances.errors import InputError
from coplace.training.parameters.codecs import Half, TopK, codec, decode
from coplace.training.parameters.flat import FlatModel
from coplace.training.parameters.layout import Layout, shards
from coplace.training.parameters.optimizer import ShardOptimizer
from coplace.training.parameters.recut import cut, gather
from coplace.training.parameters.settings import Adam, AdamW, Sgd, optimizer_settings


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def network() -> nn.Module:
    """Convolutions with batch normalisation, 2 channels in, 3 classes out."""
    net = nn.Sequential(nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    net(torch.randn(2, 2, 6, 6))
    return net


def backward(model: nn.Module, inputs: torch.Tensor) -> None:
    model(inputs).square().mean().backward()


# --- layout --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 5000), st.integers(1, 40))
def test_shards_cover_everything_once_and_evenly(total: int, servers: int) -> None:
    parts = shards(total, servers)
    assert len(parts) == servers
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == total
    assert all(start % 16 == 0 or start == total for start, _ in parts)
    sizes = [stop - start for start, stop in parts]
    assert max(sizes) - min(sizes) <= 31


def test_another_model_is_refused_by_the_first_tensor_that_differs() -> None:
    mine = Layout(6, 2, ("w", "mean"), ((2, 3), (2,)))
    again = Layout.from_document(json.loads(json.dumps(mine.to_document())))
    assert again == mine
    mine.require_same(again)
    with pytest.raises(InputError, match=r"worker-1: model\.mean: must be .* mean of shape \[2\], not .* no more"):
        mine.require_same(Layout(6, 0, ("w",), ((2, 3),)), "worker-1")
    with pytest.raises(InputError, match="must match its digest"):
        Layout.from_document({**mine.to_document(), "names": ["w", "variance"]})
    with pytest.raises(InputError, match="lacks 'names'"):
        Layout.from_document({"parameters": 1, "buffers": 0})
    with pytest.raises(ValueError, match="do not part"):
        Layout(5, 3, ("w", "mean"), ((2, 3), (2,)))


# --- flat model ----------------------------------------------------------------------------------------------------


def test_parameters_and_gradients_live_in_the_flat_vectors() -> None:
    model = network()
    flat = FlatModel(model)
    twin = network()
    twin.load_state_dict(model.state_dict())
    inputs = torch.randn(4, 2, 6, 6)
    flat.zero_gradient()
    backward(model, inputs)
    backward(twin, inputs)
    update = flat.update()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in twin.parameters()])
    assert np.array_equal(update[: flat.layout.parameters], expected.numpy())
    changes = dict(zip(flat.layout.names, flat.layout.starts, strict=False))
    assert update[changes["1.num_batches_tracked"]] == 1
    moved = torch.as_tensor(update[changes["1.running_var"] :][:5])
    assert moved.abs().min() > 0
    assert flat.update() is update
    flat.values[0] = 7
    assert model[0].weight.reshape(-1)[0] == 7


def test_loading_in_slices_makes_a_model_the_same_as_another() -> None:
    one, other = FlatModel(network()), FlatModel(network())
    backward(one.module, torch.randn(4, 2, 6, 6))
    state = one.values.copy()
    state[one.layout.parameters :] += one.update()[one.layout.parameters :]
    state[-1] -= 1e-5  # a counter summed up from weighted changes
    for start, stop in shards(one.layout.total, 3):
        other.load(start, state[start:stop])
    other.ready()
    for name, tensor in other.module.state_dict().items():
        assert torch.equal(tensor, one.module.state_dict()[name]), name
    assert not other.update()[one.layout.parameters :].any()
    with pytest.raises(ValueError, match="do not fit"):
        other.load(one.layout.total - 1, state[:2])


def test_an_lstm_with_embedding_and_idle_and_tied_and_frozen_parts() -> None:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 8)
            self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True)
            self.idle = nn.Linear(3, 3)
            self.frozen = nn.Linear(8, 8)
            self.frozen.requires_grad_(False)
            self.out = nn.Linear(8, 11, bias=False)
            self.out.weight = self.words.weight
            self.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
            self.register_buffer("scratch", torch.zeros(5), persistent=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            self.lstm.flatten_parameters()
            return self.out(self.frozen(self.lstm(self.words(tokens))[0]))

    model = Language()
    flat = FlatModel(model)
    assert flat.layout.names.count("words.weight") == 1
    assert "out.weight" not in flat.layout.names
    assert flat.layout.names[-3:] == ("frozen.weight", "frozen.bias", "mask")
    flat.ready()
    model.zero_grad(set_to_none=True)  # as programs do that know nothing of the flat vectors
    backward(model, torch.tensor([[1, 2, 3]]))
    update = flat.update()
    starts = dict(zip(flat.layout.names, flat.layout.starts, strict=False))
    assert not update[starts["idle.weight"] : starts["idle.weight"] + 12].any()
    assert update[starts["words.weight"] : starts["lstm.weight_ih_l0"]].any()
    assert not update[flat.layout.parameters :].any(), "a mask of -inf does not change"
    before = model(torch.tensor([[4, 5]]))
    flat.values[: flat.layout.parameters] *= 2
    assert not torch.equal(model(torch.tensor([[4, 5]])), before)


def test_a_written_model_is_loaded_by_torch(tmp_path: Path) -> None:
    flat = FlatModel(network())
    flat.write(tmp_path / "model.safetensors")
    loaded = load_file(tmp_path / "model.safetensors")
    fresh = network()
    fresh.load_state_dict(loaded)
    assert torch.equal(fresh[0].weight, flat.module[0].weight)


def test_what_cannot_be_carried_is_refused_and_what_is_cast_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def holding(tensor: torch.Tensor) -> nn.Module:
        module = nn.Linear(1, 1)
        module.register_buffer("ids", tensor)
        return module

    cases: list[tuple[nn.Module, str]] = [
        (nn.Sequential(nn.Embedding(3, 3, sparse=True)), r"model\.0: must have dense gradients"),
        (nn.Linear(2, 2, dtype=torch.complex64), "model.weight: must be real numbers; found torch.complex64"),
        (nn.LazyLinear(2), "model.weight: must have its shape"),
        (nn.Linear(2, 2, device="meta"), "model.weight: must be on the CPU; found meta"),
        (holding(torch.tensor([2**24 + 1])), "model.ids: must be whole numbers up to 16777216"),
    ]
    for module, message in cases:
        with pytest.raises(InputError, match=message):
            FlatModel(module)
    flat = FlatModel(holding(torch.tensor([3, 4])).double())
    assert flat.module.weight.dtype == torch.float32
    assert "trained as float32: weight (float64), bias (float64)" in caplog.text
    assert flat.values[2:].tolist() == [3, 4]


def test_a_sparse_gradient_is_refused_where_it_appears() -> None:
    model = nn.Embedding(5, 2)
    flat = FlatModel(model)
    model.zero_grad(set_to_none=True)
    nn.functional.embedding(torch.tensor([1]), model.weight, sparse=True).sum().backward()
    with pytest.raises(InputError, match=r"model\.weight: must have a dense gradient; found torch\.sparse_coo"):
        flat.update()


# --- codecs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torch_in_use", [True, False])
def test_float16_keeps_divergence_visible_and_buffers_exact(torch_in_use: bool) -> None:
    values = np.array([1.5, 1e6, -1e6, 65519, np.inf, -np.inf, np.nan, 70001], np.float32)
    values.flags.writeable = torch_in_use
    sent = Half(parameters=17).encode(10, values)
    back = decode("float16", sent, 8)
    expected = [1.5, 65504, -65504, 65504, np.inf, -np.inf, np.nan, 70001]
    np.testing.assert_array_equal(back, np.array(expected, np.float32))
    assert sent[0].nbytes == 14


def test_topk_sends_in_the_end_all_that_it_was_given() -> None:
    rng = np.random.default_rng(0)
    parameters, total = 200, 210
    compressor = codec("topk", parameters, total, ratio=0.1)
    received = np.zeros(total, np.float32)
    given_ = np.zeros(total, np.float32)
    for step in range(60):
        update = rng.standard_normal(total).astype(np.float32) if step < 30 else np.zeros(total, np.float32)
        given_ += update
        for start, stop in shards(total, 1 + step % 3):  # the number of servers changes on the way
            arrays = compressor.encode(start, update[start:stop].copy())
            assert len(arrays[0]) <= max(1, round(0.1 * min(stop - start, max(0, parameters - start))))
            received[start:stop] += compressor.decode(arrays, stop - start)
    np.testing.assert_allclose(received, given_, atol=1e-4)


def test_topk_takes_the_largest_forgets_on_reset_and_lets_divergence_through_once() -> None:
    compressor = TopK(4, 0.5)
    positions, entries, tail = compressor.encode(0, np.array([1, -5, 2, 3, 9], np.float32))
    assert (positions.tolist(), entries.tolist(), tail.tolist()) == ([1, 3], [-5, 3], [9])
    compressor.reset()
    assert not len(compressor.encode(0, np.zeros(5, np.float32))[0])
    assert len(compressor.encode(0, np.ones(4, np.float32))[0]) == 2
    compressor.reset()
    sent = decode("topk", compressor.encode(0, np.array([np.nan, np.nan, np.nan, np.inf], np.float32)), 4)
    assert np.isnan(sent).any()
    assert np.isfinite(decode("topk", compressor.encode(0, np.ones(4, np.float32)), 4)).all()


@pytest.mark.parametrize("name", ["none", "float16", "topk"])
@pytest.mark.parametrize(("start", "length"), [(0, 0), (0, 32), (16, 24), (48, 16)])
def test_every_codec_reads_what_it_writes(name: str, start: int, length: int) -> None:
    values = np.arange(length, dtype=np.float32)
    coded = codec(name, 30, 64, ratio=1.0)
    arrays = coded.encode(start, values)
    assert np.array_equal(decode(name, arrays, length), values)
    with pytest.raises(ValueError, match="no slice"):
        coded.decode([*arrays, values], length)


def test_nonsense_is_refused() -> None:
    one = np.ones(1, np.float32)
    none: Any = np.zeros(0, np.float32)
    for name, arrays, length in [
        ("none", [one], 2),
        ("none", [one.astype(np.float64)], 1),
        ("none", [one.reshape(1, 1)], 1),
        ("float16", [one.astype(np.float16), one], 3),
        ("topk", [np.array([4], np.int32), one, none], 4),
        ("topk", [np.array([-1], np.int32), one, none], 4),
        ("topk", [np.array([1, 1], np.int32), np.ones(2, np.float32), none], 4),
        ("topk", [np.array([1], np.int64), one, none], 4),
        ("topk", [np.array([1, 2], np.int32), one, none], 4),
        ("topk", [np.array([0], np.int32), one, np.ones(5, np.float32)], 4),
        ("zip", [one], 1),
    ]:
        with pytest.raises(ValueError, match=r"no slice of the vector|no codec is called"):
            decode(name, arrays, length)
    with pytest.raises(ValueError, match="ratio"):
        codec("topk", 1, 1, ratio=0)


# --- optimiser -----------------------------------------------------------------------------------------------------

SETTINGS = [
    Sgd(lr=0.1),
    Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    Adam(lr=0.01, weight_decay=0.01),
    AdamW(lr=0.01, betas=(0.8, 0.99)),
]


def torch_optimizer(settings: Sgd | Adam | AdamW, parameters: Any) -> Any:
    kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    return kinds[settings.name](parameters, **settings.model_dump(exclude={"name"}), fused=True)


def opened(settings: Any, values: Any, parameters: int, servers: int, state: Any = None) -> list[ShardOptimizer]:
    return [
        ShardOptimizer(
            settings,
            values[start:stop],
            min(stop, parameters) - min(start, parameters),
            cut(state, start, stop) if state else None,
        )
        for start, stop in shards(len(values), servers)
    ]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: f"{settings.name}-{settings.weight_decay}")
@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (3, 3), (2, 3), (3, 1)])
def test_shards_do_what_torch_does_to_the_whole_module(settings: Any, counts: tuple[int, int]) -> None:
    """Bit for bit against the flat vector, to rounding against the module's tensors, over a new cut after 10 steps."""
    module = network()
    flat = FlatModel(network())
    flat.module.load_state_dict(module.state_dict())
    flat.ready()
    parameters = flat.layout.parameters
    values = flat.values.copy()
    whole = nn.Parameter(torch.from_numpy(values[:parameters].copy()))
    by_tensor = torch_optimizer(settings, module.parameters())
    by_vector = torch_optimizer(settings, [whole])
    servers = opened(settings, values, parameters, counts[0])
    rng = np.random.default_rng(1)
    for step in range(20):
        if step == 10:
            state = gather([server.state() for server in servers])
            assert state["step"] == 10
            now = np.concatenate([server.values for server in servers])
            servers = opened(settings, now, parameters, counts[1], {k: v.copy() for k, v in state.items()})
        pushes = [(rng.standard_normal(len(values)).astype(np.float32), weight) for weight in (0.25, 0.75)]
        gradient = pushes[0][0] * np.float32(0.25) + pushes[1][0] * np.float32(0.75)
        lr = 0.05 if step % 2 else None
        start = 0
        for server in servers:
            server.step([(push[start : start + len(server.values)], weight) for push, weight in pushes], lr)
            start += len(server.values)
        whole.grad = torch.from_numpy(gradient[:parameters])
        nn.utils.vector_to_parameters(whole.grad, grads := [nn.Parameter(p.clone()) for p in module.parameters()])
        for parameter, grad in zip(module.parameters(), grads, strict=True):
            parameter.grad = grad.detach().clone()
        for optimizer in (by_tensor, by_vector):
            optimizer.param_groups[0]["lr"] = lr or settings.lr
            optimizer.step()
        values[parameters:] += gradient[parameters:]
    result = np.concatenate([server.values for server in servers])
    assert np.array_equal(result[:parameters], whole.detach().numpy())
    assert np.array_equal(result[parameters:], values[parameters:])
    tensors = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    np.testing.assert_allclose(result[:parameters], tensors, rtol=1e-5, atol=1e-6)


def test_a_shard_may_hold_buffers_alone_or_nothing() -> None:
    shard = ShardOptimizer(Adam(lr=0.1), np.zeros(3, np.float32), 0)
    shard.step([(np.ones(3, np.float32), 2.0)])
    assert shard.values.tolist() == [2, 2, 2]
    empty = ShardOptimizer(Sgd(lr=0.1, momentum=0.5), np.zeros(0, np.float32), 0)
    empty.step([(np.zeros(0, np.float32), 1.0)])
    assert gather([empty.state(), empty.state()])["step"] == 1


def test_a_wrong_update_or_state_changes_nothing() -> None:
    shard = ShardOptimizer(Adam(lr=0.1), np.zeros(3, np.float32), 3)
    for updates in ([], [(np.ones(3, np.float32), 1.0), (np.ones(2, np.float32), 1.0)]):
        with pytest.raises(ValueError, match="update"):
            shard.step(updates)
    assert shard.steps == 0
    assert not shard.values.any()
    with pytest.raises(ValueError, match="optimiser sgd has step, not exp_avg"):
        ShardOptimizer(Sgd(lr=0.1), np.zeros(3, np.float32), 3, shard.state())
    with pytest.raises(ValueError, match="not for 2 parameters"):
        ShardOptimizer(Adam(lr=0.1), np.zeros(2, np.float32), 2, shard.state())
    shard.step([(np.ones(3, np.float32), 1.0)])
    with pytest.raises(ValueError, match="not of one moment"):
        gather([shard.state(), ShardOptimizer(Adam(lr=0.1), np.zeros(3, np.float32), 3).state()])


@pytest.mark.parametrize(
    "document",
    [
        {"name": "sgd"},
        {"name": "sgd", "lr": 0},
        {"name": "sgd", "lr": 0.1, "nesterov": True},
        {"name": "sgd", "lr": 0.1, "momentum": 1},
        {"name": "adam", "lr": 0.1, "betas": [0.9, 1.0]},
        {"name": "adamw", "lr": 0.1, "weight_decay": -1},
        {"name": "lion", "lr": 0.1},
    ],
)
def test_wrong_settings_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        optimizer_settings(document)


def test_settings_survive_json() -> None:
    for settings in SETTINGS:
        assert optimizer_settings(json.loads(settings.model_dump_json())) == settings
