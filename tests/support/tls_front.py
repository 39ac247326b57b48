"""Serve HTTPS that asks for a client's certificate, as a hospital does before a web server."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path


def encrypted_front(papers: Path, behind: str) -> str:
    """Listen on loopback with the archive's certificate, pass on to HOST:PORT; the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(papers / "orthanc.pem", papers / "orthanc.key")
    context.load_verify_locations(papers / "authority.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    host, _, port = behind.rpartition(":")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            caller, _ = listening.accept()
            threading.Thread(target=answer, args=(caller,), daemon=True).start()

    def answer(caller: socket.socket) -> None:
        caller.settimeout(30)
        try:
            outer = context.wrap_socket(caller, server_side=True)
        except OSError:
            caller.close()
            return
        with outer, socket.create_connection((host, int(port)), 30) as inner, suppress(OSError):
            while outer.version() and pass_on(outer, inner):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listening.getsockname()[1]}"


def pass_on(outer: ssl.SSLSocket, inner: socket.socket) -> bool:
    """Pass on what one of them says; False when it has ended."""
    waiting = [outer] if outer.pending() else select.select([outer, inner], [], [], 30)[0]
    for source, target in ((outer, inner), (inner, outer)):
        if source in waiting:
            piece = source.recv(2**16)
            if not piece:
                return False
            target.sendall(piece)
    return bool(waiting)
