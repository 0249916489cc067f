"""The call of elasticrun.run on the wire: who is answered, and what happens to a request that a network disturbs."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import ssl
import threading
import time

import pytest

from elasticrun import _authenticated_rpc, _rpc_dial


def _asking_server(asked):
    return _authenticated_rpc.Server("127.0.0.1", lambda request: asked.append(request) or b"answer")


def test_only_workers_of_the_job_get_an_answer(this_job, other_job):
    asked = []
    server = _asking_server(asked)
    server.unlock(this_job["caller"])
    try:
        body = b"request" * 100_000
        assert _authenticated_rpc.request(["127.0.0.1"], server.port, this_job["worker"], body) == b"answer"
        for stranger in (other_job["worker"], this_job["agent"], this_job["caller"]):
            with pytest.raises(ConnectionError, match="cannot reach the process that called"):
                _authenticated_rpc.request(["127.0.0.1"], server.port, stranger, b"request")
        # A client that speaks no TLS and announces a huge request is disconnected.
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(b"\xff" * 8 + bytes(32))
            stranger.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
    finally:
        server.close()
    assert asked == [body]


def test_only_the_caller_of_the_job_is_asked(this_job, other_job):
    """Not a worker that listens in its place."""
    asked = []
    for stranger in (other_job["caller"], this_job["worker"]):
        server = _asking_server(asked)
        server.unlock(stranger)
        try:
            with pytest.raises(ConnectionError, match=r"the other side is not of this job \(.+\)"):
                _authenticated_rpc.request(["127.0.0.1"], server.port, this_job["worker"], b"request")
        finally:
            server.close()
    assert asked == []


def test_nobody_on_the_way_reads_the_call(this_job):
    """Neither the request nor the answer is among the bytes of a relay."""
    asked, seen = [], []
    server = _asking_server(asked)
    server.unlock(this_job["caller"])
    try:
        with _relay(server.port, 0, asked, seen) as port:
            body = b"the function" * 1000
            assert _authenticated_rpc.request(["127.0.0.1"], port, this_job["worker"], body) == b"answer"
    finally:
        server.close()
    wire = b"".join(seen)
    assert len(wire) > len(body)
    assert b"function" not in wire and b"answer" not in wire


@contextlib.contextmanager
def _relay(target, cuts, asked, seen=None):
    """A relay to ``target``, which adds requests to ``asked``. Closes its first connections before an answer goes through,
    ``cuts`` of them. Adds what passes to ``seen``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def forward(source, sink):
            with contextlib.suppress(OSError):
                while part := source.recv(4096):
                    if seen is not None:
                        seen.append(part)
                    sink.sendall(part)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

        def serve():
            for number in itertools.count():
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, socket.create_connection(("127.0.0.1", target)) as server:
                    asking = threading.Thread(target=forward, args=(client, server), daemon=True)
                    asking.start()
                    if number < cuts:
                        # The handshake goes through and the request arrives, but no answer.
                        while (part := server.recv(4096)) and len(asked) <= number:
                            client.sendall(part)
                        client.shutdown(socket.SHUT_RDWR)
                    else:
                        forward(server, client)
                    asking.join()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_request_is_repeated_until_its_answer_comes(this_job):
    asked = []
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: asked.append(request) or b"answer")
    server.unlock(this_job["caller"])
    try:
        with _relay(server.port, 2, asked) as port:
            assert (
                _authenticated_rpc.request(["127.0.0.1"], port, this_job["worker"], b"result", patience=300)
                == b"answer"
            )
    finally:
        server.close()
    assert asked == [b"result"] * 3


def test_a_request_waits_for_a_server_that_is_unlocked_late(monkeypatch, this_job):
    """As that of a caller that stands still. Each try waits for a short time only."""
    monkeypatch.setattr(_authenticated_rpc, "_DIAL_TIMEOUT", 0.05)
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: b"answer")
    tries = []
    real = _authenticated_rpc.dial

    def dial(*arguments):
        tries.append(arguments)
        if len(tries) == 3:
            server.unlock(this_job["caller"])
            monkeypatch.setattr(_authenticated_rpc, "_DIAL_TIMEOUT", 60.0)
        return real(*arguments)

    monkeypatch.setattr(_authenticated_rpc, "dial", dial)
    try:
        assert (
            _authenticated_rpc.request(["127.0.0.1"], server.port, this_job["worker"], b"x", patience=300) == b"answer"
        )
    finally:
        server.close()
    assert len(tries) >= 3


def test_an_address_that_leads_to_a_stranger_delays_no_other(this_job):
    """The stranger accepts and is silent, longer than this test may take."""
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: b"answer")
    server.unlock(this_job["caller"])
    try:
        context = this_job["worker"].context(serves=False)
        with socket.create_server(("127.0.0.2", server.port)):
            for addresses in (["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "127.0.0.2"]):
                channel = _rpc_dial.dial(addresses, server.port, context, 100_000)
                with channel:
                    channel.send(b"x")
                    assert channel.receive() == b"answer"
    finally:
        server.close()


def test_each_address_has_its_reason(this_job, other_job):
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: b"answer")
    server.unlock(other_job["caller"])
    try:
        with pytest.raises(ConnectionError, match="cannot reach the process that called") as failed:
            _authenticated_rpc.request(["127.0.0.1", "127.0.0.3"], server.port, this_job["worker"], b"x")
    finally:
        server.close()
    assert "127.0.0.1: the other side is not of this job" in str(failed.value)
    assert "127.0.0.3: Connection refused" in str(failed.value) or "127.0.0.3: [Errno 111]" in str(failed.value)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_server_of_all_addresses_has_those_of_ipv6(this_job):
    server = _authenticated_rpc.Server("", lambda request: b"answer")
    server.unlock(this_job["caller"])
    try:
        for address in ("127.0.0.1", "::1"):
            assert _authenticated_rpc.request([address], server.port, this_job["worker"], b"x") == b"answer"
    finally:
        server.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_a_server_may_listen_at_an_address_of_ipv6(address, this_job):
    """In brackets as in Spark's ``spark.driver.host``."""
    server = _authenticated_rpc.Server("::1", lambda request: b"answer")
    server.unlock(this_job["caller"])
    try:
        assert _authenticated_rpc.request([address], server.port, this_job["worker"], b"x") == b"answer"
    finally:
        server.close()


def _resolve_to_ipv6_first(monkeypatch, port):
    """Gives the name "caller" an address of IPv6, where nothing listens, then one of IPv4."""
    resolve = socket.getaddrinfo
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
    ]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda name, *a, **k: found if name == "caller" else resolve(name, *a, **k)
    )


def test_a_name_that_resolves_to_ipv6_first_is_reached_by_ipv4(monkeypatch, this_job):
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: b"answer")
    server.unlock(this_job["caller"])
    _resolve_to_ipv6_first(monkeypatch, server.port)
    try:
        assert _authenticated_rpc.request(["caller"], server.port, this_job["worker"], b"x") == b"answer"
    finally:
        server.close()


def test_a_machine_without_ipv6_reaches_a_name_that_resolves_to_it_first(monkeypatch, this_job):
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: b"answer")
    server.unlock(this_job["caller"])
    _resolve_to_ipv6_first(monkeypatch, server.port)

    real = socket.socket

    def of_ipv4(family, *arguments, **named):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return real(family, *arguments, **named)

    monkeypatch.setattr(socket, "socket", of_ipv4)
    try:
        assert _authenticated_rpc.request(["caller"], server.port, this_job["worker"], b"x") == b"answer"
    finally:
        server.close()


@contextlib.contextmanager
def _slow_relay(target):
    """A relay to ``target`` that passes one MiB of a request in 50 ms."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def slowly(source, sink):
            source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            with contextlib.suppress(OSError):
                while part := source.recv(1 << 20):
                    sink.sendall(part)
                    time.sleep(0.05 * len(part) / (1 << 20))

        def serve():
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", target)) as server:
                threading.Thread(target=slowly, args=(client, server), daemon=True).start()
                with contextlib.suppress(OSError):
                    while part := server.recv(4096):
                        client.sendall(part)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_a_peer_that_reads_slowly_gets_a_frame_of_any_size(this_job):
    """The limit is for each part of it: the whole takes far longer than a worker waits for the caller to go on."""
    body = bytes(24 << 20)
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: str(len(request)).encode())
    server.unlock(this_job["caller"])
    try:
        with _slow_relay(server.port) as port:
            context = this_job["worker"].context(serves=False)
            with _rpc_dial.dial(["127.0.0.1"], port, context, 60) as channel:
                channel.set_timeout(0.5)
                channel.send(body)
                channel.set_timeout(60)
                assert channel.receive() == str(len(body)).encode()
    finally:
        server.close()


def test_a_server_that_was_out_of_descriptors_goes_on(this_job, monkeypatch):
    server = _authenticated_rpc.Server("127.0.0.1", lambda request: b"answer")
    server.unlock(this_job["caller"])
    accept, fails = server._listener.accept, [OSError(errno.EMFILE, "too many open files"), RuntimeError]
    start = threading.Thread.start

    def starts(thread):
        if thread._target == server._serve and fails:
            raise fails.pop()
        start(thread)

    class Listener:
        def __getattr__(self, name):
            return getattr(listener, name)

        def accept(self):
            if len(fails) == 1:
                raise fails.pop()
            return accept()

    listener, server._listener = server._listener, Listener()
    monkeypatch.setattr(threading.Thread, "start", starts)
    try:
        answer = _authenticated_rpc.request(["127.0.0.1"], server.port, this_job["worker"], b"x", patience=300)
        assert (answer, fails) == (b"answer", [])
    finally:
        server.close()


def test_a_python_without_memfd_create_has_a_context(this_job, monkeypatch):
    """As builds for glibc before 2.27 are."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert this_job["caller"].context(serves=True).verify_mode == ssl.CERT_REQUIRED
