"""Runs first inside a sandbox that has listeners: opens them, hands them to the host, becomes the program.

A socket belongs to the network namespace it was made in. So the host can serve on a socket that only this sandbox
reaches, without a forwarder and without any other way in (D9). The file stands alone: it is read by whatever Python
the sandbox has, with neither site nor package.

    python3 -I -S -B launcher.py CHANNEL_FD PORT,PORT PROGRAM ARGUMENT...
"""

import _socket  # what `socket` wraps; without the wrapper's own imports the start is quicker
import os
import sys

_BACKLOG = 128


def main() -> None:
    """Never returns. The host reads the descriptors, then either the reason of a failure or the end of the channel,
    which the kernel closes at a successful exec."""
    channel = _socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    try:
        listeners = [_listen(int(port)) for port in sys.argv[2].split(",")]
        fds = b"".join(listener.fileno().to_bytes(4, sys.byteorder) for listener in listeners)
        channel.sendmsg([b"listening"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
        os.execvpe(sys.argv[3], sys.argv[3:], _environment())
    except OSError as error:
        channel.sendall(f"{sys.argv[3]}: {error.strerror}".encode())
        os._exit(127)


def _environment() -> dict[bytes, bytes]:
    # As it was handed in: in a C locale the interpreter has added LC_CTYPE to its own by now.
    with open("/proc/self/environ", "rb") as file:
        pairs = (item.partition(b"=") for item in file.read().split(b"\0") if item)
        return {name: value for name, _, value in pairs}


def _listen(port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    return listener


if __name__ == "__main__":
    main()
