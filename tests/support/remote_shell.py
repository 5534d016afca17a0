"""Stands for ``ssh`` and ``sshd`` between nodes that are namespaces: runs a command in the node whose socket it is.

``remote_shell.py serve SOCKET`` is the first process of a node; ``remote_shell.py call FOLDER [OPTIONS] HOST COMMAND...``
is what takes the place of ``ssh``. As with ``ssh``, the command gets the caller's standard streams and little of its
environment, and does not end because the caller does.
"""

import contextlib
import os
import select
import signal
import socket
import sys


def serve(path: str) -> None:
    """Be the first process of a node: start what callers ask for, and bury every orphan."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen(64)
    os.rename(path + ".new", path)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    callers: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([server, reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if not pid:
                    break
                if caller := callers.pop(pid, None):
                    with contextlib.suppress(OSError):  # gone; its command was not
                        code = os.waitstatus_to_exitcode(status)
                        caller.send(bytes([code if code >= 0 else 128 - code]))
                    caller.close()
        if server in ready:
            caller, _ = server.accept()
            command, streams, _, _ = socket.recv_fds(caller, 1 << 18, 3)
            callers[spawn(command, streams)] = caller
            for stream in streams:
                os.close(stream)


def spawn(command: bytes, streams: list[int]) -> int:
    """Start a login's shell with ``command``."""
    environ = {"HOME": os.environ.get("HOME", "/"), "PATH": os.environ["PATH"], "USER": "root"}
    # What tests run is no run of the user's, nor is it what the user of this machine says of his.
    environ |= {"XDG_STATE_HOME": "/dev/null/none", "XDG_CONFIG_HOME": "/dev/null/none"}
    moves = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)]
    return os.posix_spawn(
        "/bin/sh", ["sh", "-c", command], environ, file_actions=moves, setsid=True, setsigdef=[signal.SIGPIPE]
    )


def call(folder: str, words: list[str]) -> int:
    """Run a command in a node; its exit code, or 255 if the node does not answer."""
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] == "-o" else words[1:]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"{folder}/{words[0]}")
        socket.send_fds(connection, [" ".join(words[1:]).encode()], [0, 1, 2])
        answer = connection.recv(1)
    except OSError as error:
        print(f"rsh: {words[0]}: {error.strerror}", file=sys.stderr)
        return 255
    return answer[0] if answer else 255


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(sys.argv[2], sys.argv[3:]))
