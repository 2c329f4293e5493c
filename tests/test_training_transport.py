"""Messages and mailboxes: order, completeness, faults of the medium, strangers."""

from __future__ import annotations

import contextlib
import errno
import logging
import multiprocessing
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coplace.training.messages import DTYPES, Message, MessageError, decode_header, encode
from coplace.training.transport import Endpoint, TransportError, open_endpoint
from coplace.training.transport.buffers import Buffers
from coplace.training.transport.file import FileEndpoint, clean
from coplace.training.transport.file_format import entry, origin_of, preamble
from coplace.training.transport.tcp import TcpEndpoint
from coplace.training.transport.tcp_format import CHUNK, MAGIC, STAMP, parse_address
from coplace.training.transport.tcp_guard import password

TOKEN = "a secret"
LONG = 20.0  # seconds in which all must have come; nothing waits so long when all is well
Opener = Callable[[str], Endpoint]


@pytest.fixture(params=["file", "tcp"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    made: list[Endpoint] = []

    def opener(name: str) -> Endpoint:
        made.append(open_endpoint(request.param, name, directory=tmp_path / "job", token=TOKEN))
        return made[-1]

    yield opener
    for endpoint in made:
        endpoint.close()


def get(endpoint: Endpoint) -> Message:
    message = endpoint.receive(LONG)
    assert message is not None
    return message


# --- messages ---

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
any_array = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)


@given(st.text(), st.text(), st.dictionaries(st.text(), json_values, max_size=3), st.lists(any_array, max_size=3))
def test_what_is_encoded_comes_out_again(
    kind: str, sender: str, fields: dict[str, object], arrays: list[np.ndarray]
) -> None:
    header, flat = encode(kind, sender, fields, arrays)
    back = decode_header(header).message([memoryview(array.tobytes()) for array in flat])
    assert (back.kind, back.sender, back.fields) == (kind, sender, fields)
    for array, copy in zip(arrays, back.arrays, strict=True):
        assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
        assert copy.tobytes() == array.tobytes()


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_no_bytes_crash_the_decoder(raw: bytes) -> None:
    with contextlib.suppress(MessageError):
        decode_header(raw)


@pytest.mark.parametrize(
    "header",
    [
        b"[1]", b'["k","s",{}]', b'["k","s",[],[]]', b'["k","s",{},[["object",[1]]]]',
        b'["k","s",{},[["float32",[-1]]]]',
        b'["k","s",{},[["float32",[true]]]]', b'["k","s",{},[["float32",[4611686018427387903,8]]]]',
        b'["k","s",{},[["float32",1]]]', b"[" * 100_000, b"\xff", b"",
    ],
)  # fmt: skip
def test_headers_that_are_none_are_refused(header: bytes) -> None:
    with pytest.raises(MessageError):
        decode_header(header)


def test_what_cannot_be_sent_is_refused() -> None:
    for array in (np.array([object()]), np.array(["text"]), np.zeros(1, dtype=[("a", "f4")]), np.zeros(1, complex)):
        with pytest.raises(MessageError):
            encode("k", "s", {}, [array])
    with pytest.raises(MessageError):
        encode("k", "s", {"what": object()})


def test_arrays_go_as_their_elements_are_not_as_they_lie() -> None:
    wanted = np.arange(12, dtype=np.float32).reshape(3, 4)
    for array in (wanted.T.copy().T, wanted.astype(">f4"), np.repeat(wanted, 2, axis=1)[:, ::2]):
        header, flat = encode("k", "s", {"n": np.int64(3)}, [array])
        back = decode_header(header).message([memoryview(flat[0])])
        assert np.array_equal(back.arrays[0], wanted)
        assert back.fields == {"n": 3}


def test_memory_in_use_is_not_handed_out_again() -> None:
    buffers = Buffers(2**24)
    first = buffers.take(2**20)
    view = first[10:20].view(np.int16).reshape(5, 1)
    where = first.ctypes.data
    del first
    assert buffers.take(2**20).ctypes.data != where
    del view
    assert where in {buffers.take(2**20).ctypes.data for _ in range(2)}


# --- both transports ---


def test_messages_of_every_sender_come_in_order(opened: Opener) -> None:
    receiver = opened("receiver")
    senders = [opened(f"sender-{i}") for i in range(3)]

    def run(sender: Endpoint) -> None:
        for number in range(60):
            sender.send(receiver.address, "n", {"n": number}, [np.full(number * 20, number)])

    threads = [threading.Thread(target=run, args=(sender,)) for sender in senders]
    for thread in threads:
        thread.start()
    came: dict[str, list[int]] = {}
    for _ in range(180):
        message = get(receiver)
        came.setdefault(message.sender, []).append(message.fields["n"])
        assert (message.arrays[0] == message.fields["n"]).all()
    for thread in threads:
        thread.join()
    assert came == {f"sender-{i}": list(range(60)) for i in range(3)}
    assert receiver.receive(0) is None
    assert receiver.dropped == 0


def test_one_message_goes_to_several(opened: Opener) -> None:
    sender, *receivers = (opened(name) for name in ("s", "a", "b", "c"))
    large = np.arange(3 * CHUNK // 8 + 1)
    for array in (np.arange(3), large):
        sender.send([receiver.address for receiver in receivers], "k", {"x": [1]}, [array, array[:1]])
    for receiver in receivers:
        for array in (np.arange(3), large):
            message = get(receiver)
            assert message.fields == {"x": [1]}
            assert np.array_equal(message.arrays[0], array)
            assert np.array_equal(message.arrays[1], array[:1])
        assert receiver.bytes_received == large.nbytes + 5 * 8
    assert sender.bytes_sent == 3 * receivers[0].bytes_received


def test_arrays_of_all_sizes_arrive_whole_and_aligned(opened: Opener) -> None:
    a, b = opened("a"), opened("b")
    for nbytes in (0, 1, 63, 4000, 4096, 65536, 65537, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5):
        data = np.random.default_rng(nbytes).integers(0, 255, nbytes, dtype=np.uint8)
        a.send(b.address, "k", {"pad": "x" * 5000}, [np.zeros((0, 2)), data, np.float64(1.5).reshape(())])
        message = get(b)
        assert message.arrays[0].shape == (0, 2)
        assert np.array_equal(message.arrays[1], data)
        assert message.arrays[2] == 1.5
        assert all(array.flags.aligned for array in message.arrays)


def test_arrays_may_be_modified_once_sent(opened: Opener) -> None:
    a, b = opened("a"), opened("b")
    for size in (10, 2 * CHUNK // 4):
        array = np.ones(size, dtype=np.float32)
        for round_ in range(4):
            array[:] = round_
            a.send(b.address, "k", {}, [array])
        array[:] = -1
        kept = [get(b).arrays[0] for _ in range(4)]  # memory that is used again must not be one still held
        assert [(np.min(one), np.max(one)) for one in kept] == [(n, n) for n in range(4)]


def test_a_message_to_oneself_arrives(opened: Opener) -> None:
    a = opened("a")
    a.send(a.address, "k")
    assert get(a) == Message("k", "a")


def test_receive_returns_with_nothing_when_nothing_comes(opened: Opener) -> None:
    a = opened("a")
    assert a.receive(0) is None
    start = time.monotonic()
    assert a.receive(0.05) is None
    assert time.monotonic() - start >= 0.049


def test_who_is_gone_gets_nothing_and_disturbs_nobody(opened: Opener) -> None:
    a, gone, b = opened("a"), opened("gone"), opened("b")
    a.send([gone.address, b.address], "before")
    assert get(b).kind == "before"
    gone.close()
    for receivers in ([gone.address, b.address], [b.address, gone.address], [gone.address]):
        a.send(receivers, "after", {}, [np.zeros(100_000)])
    a.forget(gone.address)
    a.send(b.address, "last")
    assert [get(b).kind for _ in range(3)] == ["after", "after", "last"]


def test_forgetting_and_sending_again_begins_anew(opened: Opener) -> None:
    a, b = opened("a"), opened("b")
    a.send(b.address, "first")
    assert get(b).kind == "first"
    a.forget(b.address)
    a.forget(b.address)
    a.send(b.address, "second")
    assert get(b).kind == "second"


def test_what_came_from_a_forgotten_sender_is_still_received(opened: Opener) -> None:
    a, b = opened("a"), opened("b")
    a.send(b.address, "k", {}, [np.zeros(CHUNK)])
    a.send(b.address, "last")
    if isinstance(b, TcpEndpoint):
        deadline = time.monotonic() + LONG
        while len(b._ready) < 2 and time.monotonic() < deadline:
            b._pump(0.1)
    b.forget(a.address)
    assert [get(b).kind, get(b).kind] == ["k", "last"]


def test_a_closed_mailbox_does_nothing_more(opened: Opener) -> None:
    a = opened("a")
    a.close()
    a.close()
    with pytest.raises(TransportError, match="closed"):
        a.send(a.address, "k")
    with pytest.raises(TransportError, match="closed"):
        a.receive(0)


def test_addresses_are_never_used_again(opened: Opener) -> None:
    addresses = []
    for _ in range(3):
        endpoint = opened("worker-0")
        addresses.append(endpoint.address)
        endpoint.close()
    assert len(set(addresses)) == 3


def test_what_is_no_address_is_refused(opened: Opener) -> None:
    for address in ("", "../x", "a/b~0123456789abcdef", "tcp://1.2.3.4:5", ".x~0123456789abcdef"):
        with pytest.raises(ValueError, match="no address"):
            opened("a").send(address, "k")


def _echo(kind: str, directory: Path, address: str) -> None:
    endpoint = open_endpoint(kind, "child", directory=directory, token=TOKEN)
    endpoint.send(address, "hello", {"address": endpoint.address})
    while (message := endpoint.receive(LONG)) is not None and message.kind != "stop":
        endpoint.send(address, message.kind, message.fields, message.arrays)
    endpoint.close()


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_forked_processes_talk_though_the_parent_has_a_mailbox(kind: str, tmp_path: Path) -> None:
    parent = open_endpoint(kind, "parent", directory=tmp_path, token=TOKEN)
    parent.send(parent.address, "warm up", {}, [np.zeros(CHUNK)])
    assert get(parent).kind == "warm up"
    child = multiprocessing.get_context("fork").Process(target=_echo, args=(kind, tmp_path, parent.address))
    child.start()
    address = get(parent).fields["address"]
    data = np.arange(CHUNK)
    for number in range(3):
        parent.send(address, "k", {"n": number}, [data])
        message = get(parent)
        assert message.fields == {"n": number}
        assert np.array_equal(message.arrays[0], data)
    parent.send(address, "stop")
    child.join(LONG)
    assert child.exitcode == 0
    parent.close()


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="directory"):
        open_endpoint("file", "a")
    with pytest.raises(ValueError, match="token"):
        open_endpoint("tcp", "a")
    with pytest.raises(ValueError, match="no transport"):
        open_endpoint("pigeon", "a")
    with pytest.raises(TransportError, match="no port"):
        open_endpoint("tcp", "a", host="192.0.2.1", token=TOKEN)
    (tmp_path / "file").write_text("")
    with pytest.raises(TransportError, match="cannot be made"):
        open_endpoint("file", "a", directory=tmp_path / "file")


# --- files ---


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[FileEndpoint, FileEndpoint]]:
    a, b = FileEndpoint("a", tmp_path, deadline=0.2), FileEndpoint("b", tmp_path, deadline=0.2)
    yield a, b
    a.close()
    b.close()


def inbox(endpoint: FileEndpoint) -> Path:
    return endpoint._inbox_path


def failing(real: Callable[..., object], code: int, times: int, part: str = "") -> Callable[..., object]:
    """*real*, which at first fails *times* times for paths with *part* in them."""
    left = [times]

    def stand_in(path: object, *args: object, **kwargs: object) -> object:
        if left[0] and part in str(path):
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return real(path, *args, **kwargs)

    return stand_in


def test_nothing_is_left_when_all_are_closed(tmp_path: Path) -> None:
    a, b = FileEndpoint("a/../b", tmp_path), FileEndpoint("b", tmp_path)
    a.send(b.address, "k", {}, [np.zeros(1000)])
    a.close()
    assert b.receive(LONG) is not None
    assert os.listdir(inbox(b)) == []
    b.close()
    assert os.listdir(tmp_path) == []


def test_leftovers_of_the_dead_can_be_removed(tmp_path: Path) -> None:
    a, dead = FileEndpoint("a", tmp_path / "job"), FileEndpoint("dead", tmp_path / "job")
    a.send(dead.address, "k")
    (tmp_path / "job" / "note").write_text("")
    (tmp_path / "job" / "link").symlink_to(tmp_path)
    clean(tmp_path / "job")
    assert os.listdir(tmp_path) == ["job"]
    assert os.listdir(tmp_path / "job") == []
    clean(tmp_path / "nothing")


def test_the_payload_is_written_once_for_all(tmp_path: Path) -> None:
    a, b, c = (FileEndpoint(name, tmp_path) for name in "abc")
    a.send([b.address, c.address], "k", {}, [np.zeros(1000)])
    files = [next(inbox(endpoint).iterdir()) for endpoint in (b, c)]
    assert files[0].samefile(files[1])


@pytest.mark.parametrize("code", [errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EMLINK])
def test_where_there_are_no_links_copies_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    a, b, c = (FileEndpoint(name, tmp_path) for name in "abc")
    monkeypatch.setattr(os, "link", failing(os.link, code, 100))
    for number in range(2):
        a.send([b.address, c.address], "k", {"n": number})
    assert [get(endpoint).fields["n"] for endpoint in (b, c) for _ in range(2)] == [0, 1, 0, 1]


def test_the_others_get_it_though_the_first_receiver_goes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links to a file that went with its directory cannot be made, which looked like receivers that are gone."""
    a, b, c = (FileEndpoint(name, tmp_path) for name in "abc")
    real = os.link

    def link(*args: Path) -> None:
        b.close()
        real(*args)

    monkeypatch.setattr(os, "link", link)
    a.send([b.address, c.address], "k", {}, [np.arange(5)])
    assert get(c).arrays[0].tolist() == [0, 1, 2, 3, 4]


def damage(path: Path, how: str) -> None:
    raw = bytearray(path.read_bytes())
    if how == "short":
        del raw[-5:]
    elif how == "empty":
        raw.clear()
    elif how == "long":
        raw += b"x"
    elif how == "magic":
        raw[0] ^= 1
    elif how == "length":
        raw[16] ^= 1
    else:
        raw[-1 if how == "payload" else 45] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("how", ["short", "empty", "long", "magic", "length", "header", "payload"])
def test_a_damaged_message_is_dropped_and_the_next_delivered(
    pair: tuple[FileEndpoint, FileEndpoint], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair
    for number in range(2):
        a.send(b.address, "k", {"n": number}, [np.arange(2000)])
    damage(sorted(inbox(b).iterdir())[0], how)
    with caplog.at_level(logging.WARNING):
        assert get(b).fields["n"] == 1
    assert b.dropped == 1
    assert "dropped" in caplog.text
    assert os.listdir(inbox(b)) == []


def test_a_message_that_becomes_whole_in_time_is_delivered(pair: tuple[FileEndpoint, FileEndpoint]) -> None:
    a, b = pair
    a.send(b.address, "k", {}, [np.arange(2000)])
    (file,) = inbox(b).iterdir()
    whole = file.read_bytes()
    damage(file, "short")
    assert b.receive(0.02) is None
    file.write_bytes(whole)
    assert get(b).arrays[0].tolist() == list(range(2000))
    assert b.dropped == 0


def test_strange_files_are_never_delivered(
    pair: tuple[FileEndpoint, FileEndpoint], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair
    (inbox(b) / "notes.txt").write_text("hello")
    (inbox(b) / ".hidden").write_text("hello")
    (inbox(b) / "directory").mkdir()
    (inbox(b) / entry(0, "0123456789abcdef-0")).write_text("not a message")
    (inbox(b) / entry(7, "1123456789abcdef-0")).write_text("not a message, and not the first")
    header, flat = encode("forged", "x", {}, [])
    (inbox(b) / entry(0, "2123456789abcdef-0")).write_bytes(preamble("3" * 16, header, flat) + header)
    wrong = b"{}"
    (inbox(b) / entry(0, "4123456789abcdef-0")).write_bytes(preamble("4123456789abcdef", wrong, []) + wrong)
    a.send(b.address, "real")
    assert get(b).kind == "real"
    end = time.monotonic() + LONG
    while b.dropped < 6 and time.monotonic() < end:
        assert b.receive(0.05) is None
    assert b.dropped == 6
    assert b.receive(0.1) is None
    assert b.dropped == 6


def test_a_listing_without_an_entry_does_not_change_the_order(
    pair: tuple[FileEndpoint, FileEndpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    for number in range(4):
        a.send(b.address, "k", {"n": number})
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [name for name in real(path) if not name.startswith(f"{0:016x}")])
    assert [get(b).fields["n"] for _ in range(4)] == [0, 1, 2, 3]


def test_a_later_message_waits_for_an_earlier_one(pair: tuple[FileEndpoint, FileEndpoint], tmp_path: Path) -> None:
    a, b = pair
    for number in range(3):
        a.send(b.address, "k", {"n": number})
    first = sorted(inbox(b).iterdir())[0]
    first.rename(tmp_path / "aside")
    assert b.receive(0.05) is None
    (tmp_path / "aside").rename(first)
    assert [get(b).fields["n"] for _ in range(3)] == [0, 1, 2]


def test_a_lost_message_is_an_error_and_others_go_on(pair: tuple[FileEndpoint, FileEndpoint], tmp_path: Path) -> None:
    a, b = pair
    for number in range(3):
        a.send(b.address, "k", {"n": number})
    sorted(inbox(b).iterdir())[1].unlink()
    assert get(b).fields["n"] == 0
    with pytest.raises(TransportError, match="message 1 from a is missing") as caught:
        b.receive(LONG)
    assert caught.value.peer == "a"
    other = FileEndpoint("other", tmp_path)
    other.send(b.address, "k", {"n": 9})
    assert get(b).fields["n"] == 9
    assert b.receive(0.05) is None
    other.close()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO])
@pytest.mark.parametrize("function", ["open", "listdir", "readv", "fstat", "write", "rename", "link"])
def test_faults_that_pass_are_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, function: str
) -> None:
    a, b, c = (FileEndpoint(name, tmp_path, deadline=LONG) for name in "abc")
    name = "writev" if function == "write" else function
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(getattr(os, name), code, 3))
        for number in range(2):
            a.send([b.address, c.address], "k", {"n": number}, [np.arange(2000)])
    for endpoint in (b, c):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), code, 3))
            for number in range(2):
                message = get(endpoint)
                assert message.fields["n"] == number
                assert message.arrays[0].tolist() == list(range(2000))
        assert endpoint.dropped == 0


def test_a_renaming_that_succeeds_though_it_reports_failure_sends_once(
    pair: tuple[FileEndpoint, FileEndpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    for function in ("rename", "link"):
        real = getattr(os, function)

        def twice(*args: Path, real: Callable[..., None] = real, failed: list[int] = []) -> None:  # noqa: B006
            real(*args)
            if not failed:
                failed.append(1)
                raise OSError(errno.EIO, "the answer was lost")

        monkeypatch.setattr(os, function, twice)
    a.send([a.address, b.address], "one")
    a.send([a.address, b.address], "two")
    for endpoint in pair:
        assert [get(endpoint).kind, get(endpoint).kind] == ["one", "two"]
        assert endpoint.receive(0) is None


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_faults_that_stay_are_reported(
    pair: tuple[FileEndpoint, FileEndpoint], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    a, b = pair
    a.send(b.address, "k")
    for name in ("open", "listdir"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), code, 10**9))
            with pytest.raises(TransportError, match=os.strerror(code)):
                b.receive(LONG)
            if name == "open":
                with pytest.raises(TransportError, match=os.strerror(code)):
                    a.send(b.address, "k")
    a.send(b.address, "k")
    assert get(b).kind == get(b).kind == "k"  # when it works again, nothing is lost


def test_an_inbox_that_is_gone_is_reported_to_its_owner(pair: tuple[FileEndpoint, FileEndpoint]) -> None:
    a, _ = pair
    shutil.rmtree(inbox(a))
    with pytest.raises(TransportError, match="cannot be read"):
        a.receive(LONG)


def test_forgetting_takes_back_what_was_not_read(pair: tuple[FileEndpoint, FileEndpoint]) -> None:
    a, b = pair
    a.send(b.address, "k")
    b.send(b.address, "own")
    a.forget(b.address)
    assert get(b).kind == "own"
    assert b.receive(0) is None


def test_a_mailbox_survives_the_end_of_a_process_that_was_forked(tmp_path: Path) -> None:
    a = FileEndpoint("a", tmp_path)
    child = multiprocessing.get_context("fork").Process(target=a.close)
    child.start()
    child.join(LONG)
    a.send(a.address, "k")
    assert get(a).kind == "k"


# --- TCP ---


@pytest.fixture
def listener() -> Iterator[TcpEndpoint]:
    endpoint = TcpEndpoint("listener", "127.0.0.1", TOKEN, deadline=0.3)
    yield endpoint
    endpoint.close()


@pytest.fixture
def dealer(listener: TcpEndpoint) -> Iterator[zmq.Socket[bytes]]:
    """One who knows the token, but not what to say."""
    where, username = parse_address(listener.address)
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.linger = 0
        made.plain_username = username.encode()
        made.plain_password = password(TOKEN)
        made.connect(where)
        yield made


def refused(listener: TcpEndpoint) -> bool:
    end = time.monotonic() + LONG
    while not listener.refused and time.monotonic() < end:
        assert listener.receive(0.01) is None
    return listener.refused > 0


def test_another_token_is_refused(listener: TcpEndpoint) -> None:
    stranger = TcpEndpoint("stranger", "127.0.0.1", "another secret")
    stranger.send(listener.address, "k")
    assert refused(listener)
    assert listener.receive(0.1) is None
    listener.send(stranger.address, "k")
    assert stranger.receive(0.1) is None
    stranger.close()


def test_who_means_the_former_owner_of_the_port_is_refused(listener: TcpEndpoint) -> None:
    """Connections are renewed by themselves, and then delivered what was meant for a process that had died."""
    late = TcpEndpoint("late", "127.0.0.1", TOKEN)
    late.send(listener.address.split("#")[0] + "#0123456789abcdef", "k")
    assert refused(listener)
    assert listener.receive(0.1) is None
    late.close()


@pytest.mark.parametrize("mechanism", ["none", "wrong"])
def test_a_client_without_token_can_say_nothing(listener: TcpEndpoint, mechanism: str) -> None:
    where, username = parse_address(listener.address)
    header, _ = encode("forged", "x")
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger = 0
        if mechanism == "wrong":
            client.plain_username = username.encode()
            client.plain_password = b"guess"
        client.connect(where)
        client.send_multipart([STAMP.pack(MAGIC, b"12345678", 0, 0), header])
        assert listener.receive(0.3) is None


def test_junk_at_the_port_does_no_harm(listener: TcpEndpoint) -> None:
    host, port = parse_address(listener.address)[0].removeprefix("tcp://").split(":")
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f" + bytes(200), bytes(5000), b""):
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(junk)
    assert listener.receive(0.05) is None
    with TcpSender(listener) as sender:
        sender.send(listener.address, "k")
        assert get(listener).kind == "k"


class TcpSender(TcpEndpoint):
    """A mailbox that knows the token of *listener*."""

    def __init__(self, listener: TcpEndpoint) -> None:
        super().__init__("sender", "127.0.0.1", TOKEN)

    def __enter__(self) -> TcpSender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_frames_that_make_no_sense_are_dropped(listener: TcpEndpoint, dealer: zmq.Socket[bytes]) -> None:
    def stamp(number: int, magic: bytes = MAGIC) -> bytes:
        return STAMP.pack(magic, b"12345678", 0, number)

    small, _ = encode("k", "x", {}, [np.zeros(2)])
    large, _ = encode("k", "x", {}, [np.zeros(CHUNK)])
    huge, _ = encode("k", "x", {}, [])
    huge = huge.replace(b"[]]", b'[["uint8",[4611686018427387000]]]]')
    frames = [
        [b"junk"],
        [b"", b""],
        [stamp(0)],
        [stamp(0, b"coplace9"), small],
        [stamp(0), b"no header"],
        [stamp(1), small],  # the payload is missing
        [stamp(2), small, b"x" * 17],
        [stamp(3), small, b"", b""],
        [stamp(4), huge],
        [stamp(5), large],
        [stamp(6), b"not a whole chunk"],
    ]
    for parts in frames:
        dealer.send_multipart(parts)
    ended, _ = encode("end", "x")
    dealer.send_multipart([stamp(7), ended])
    assert get(listener).kind == "end"
    assert listener.dropped == len(frames) - 1


def test_frames_are_put_in_order_and_once(listener: TcpEndpoint, dealer: zmq.Socket[bytes]) -> None:
    for number in (1, 0, 0, 3, 2, 1):
        header, _ = encode("k", "x", {"n": number})
        dealer.send_multipart([STAMP.pack(MAGIC, b"12345678", 0, number), header])
    assert [get(listener).fields["n"] for _ in range(4)] == [0, 1, 2, 3]
    assert listener.receive(0.05) is None


def test_a_lost_frame_is_an_error_and_others_go_on(listener: TcpEndpoint, dealer: zmq.Socket[bytes]) -> None:
    for number in (0, 2):
        dealer.send_multipart([STAMP.pack(MAGIC, b"12345678", 0, number), encode("k", "x")[0]])
    assert get(listener).kind == "k"
    with pytest.raises(TransportError, match="frames 1 to 1 from x were lost") as caught:
        listener.receive(LONG)
    assert caught.value.peer == "x"
    for number in (1, 3):  # too late
        dealer.send_multipart([STAMP.pack(MAGIC, b"12345678", 0, number), encode("k", "x")[0]])
    with TcpSender(listener) as sender:
        sender.send(listener.address, "other")
        assert get(listener).kind == "other"
    assert listener.receive(0.05) is None


def test_two_that_send_at_once_more_than_may_wait_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coplace.training.transport.tcp_peer._MOST_BYTES", 2**20)
    monkeypatch.setattr("coplace.training.transport.tcp._MOST_QUEUED", 1)
    a, b = TcpEndpoint("a", "127.0.0.1", TOKEN), TcpEndpoint("b", "127.0.0.1", TOKEN)
    data = np.arange(12 * CHUNK // 8)
    received = []

    def run(mine: TcpEndpoint, other: TcpEndpoint) -> None:
        mine.send(other.address, "k", {}, [data])
        received.append(np.array_equal(get(mine).arrays[0], data))

    threads = [threading.Thread(target=run, args=pair) for pair in ((a, b), (b, a))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == [True, True]
    a.close()
    b.close()


def test_who_takes_nothing_is_given_up(
    listener: TcpEndpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("coplace.training.transport.tcp_peer._MOST_BYTES", 2**20)
    sender = TcpEndpoint("sender", "127.0.0.1", TOKEN, deadline=0.2)
    data = np.zeros(40 * CHUNK // 8)
    with caplog.at_level(logging.WARNING):
        sender.send(listener.address, "k", {}, [data])
    assert "takes no messages" in caplog.text
    sender.send(listener.address, "k")
    sender.forget(listener.address)
    sender.send(listener.address, "again")
    assert get(listener).kind == "again"
    sender.close()


def test_what_an_endpoint_is_called_says_where_it_is(listener: TcpEndpoint, tmp_path: Path) -> None:
    assert listener.address.startswith("tcp://127.0.0.1:")
    file = FileEndpoint("worker 1/x", tmp_path)
    assert origin_of(file.address) in file.address
    assert (tmp_path / file.address).is_dir()
