"""Ports that nobody else on this machine is given while they are held."""

import random
import socket

# Below the kernel's ephemeral ports: each control plane hands out NodePorts of its own.
_NODE_PORTS, _FIRST_NODE_PORT, _LAST_NODE_PORT = 100, 15_000, 32_000


class HeldRange:
    """Ports for NodePort Services that no other control plane of this machine hands out.

    The first one is bound for as long, as a sign; the others are free to be listened on.
    """

    def __init__(self) -> None:
        while True:
            first = random.randrange(_FIRST_NODE_PORT, _LAST_NODE_PORT, _NODE_PORTS)
            self._sign = socket.socket()
            try:
                self._sign.bind(("127.0.0.1", first))
                break
            except OSError:  # another control plane's
                self._sign.close()
        self.text = f"{first + 1}-{first + _NODE_PORTS - 1}"

    def release(self) -> None:
        self._sign.close()


class HeldPort:
    """A port of the kernel's choice that nobody else can be given.

    It is bound with SO_REUSEPORT and never listened on, so that a server of this user which sets
    the same option can listen there, and again after a restart.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()
