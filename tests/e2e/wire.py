"""A link between two programs that a test can cut: a TCP port that forwards all data to another one."""

import socket
import threading


class Wire:
    """Listens on a port of its own and forwards connections to `target`, a path of a unix socket."""

    def __init__(self, target):
        self.target = str(target)
        self.lock = threading.Lock()
        self.listener = None
        self.sockets = []
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        listener.close()
        self.mend()

    @property
    def remote(self):
        return f"tcp:127.0.0.1:{self.port}"

    def mend(self):
        """Accepts connections from now on."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self.listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self):
        """Ends all connections, and refuses others until `mend`."""
        with self.lock:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            for end in self.sockets:
                _end(end)
            self.sockets.clear()

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self.target)
            except OSError:
                near.close()
                continue
            with self.lock:
                # If the wire was cut in between, this connection ends like the others.
                if self.listener is not listener or listener.fileno() < 0:
                    _end(near)
                    _end(far)
                    return
                self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    _end(source)
    _end(sink)


def _end(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
