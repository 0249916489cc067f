"""Messages over a socket that keeps their boundaries (SOCK_SEQPACKET), with descriptors."""

import _socket
import array

_MAX_MESSAGE = 1 << 17


def receive(channel, count):
    """A message, and at most so many descriptors that come with it. It is empty at the end of the connection."""
    data, control, _, _ = channel.recvmsg(_MAX_MESSAGE, _socket.CMSG_SPACE(4 * count) if count else 0)
    fds = array.array("i")
    for level, kind, content in control:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


def send(channel, *words):
    """Sends words as lines."""
    text = "\n".join(str(word).replace("\n", " ")[:4000] for word in words)
    channel.send(text.encode(errors="replace"))
