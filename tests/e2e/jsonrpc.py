"""Requests to daemons over their sockets, without a program for each: control commands, and reads of databases.

A program takes some milliseconds to start and to learn a database's schema, which is most of what a small request costs.
"""

import json
import socket

TIMEOUT_S = 60


class RequestError(Exception):
    """A daemon that answers with an error, with its text, or that cannot be reached."""


def request(path, method, parameters, timeout_s=TIMEOUT_S):
    """Sends one request of JSON-RPC to the socket, and returns the result."""
    decoder, received = json.JSONDecoder(), b""
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(timeout_s)
            one.connect(str(path))
            one.sendall(json.dumps({"id": 0, "method": method, "params": parameters}).encode())
            while True:
                piece = one.recv(1 << 20)
                if not piece:
                    raise RequestError(f"{path} closed the connection during {method}")
                received += piece
                if not piece.rstrip().endswith(b"}"):
                    continue
                try:
                    answer, _ = decoder.raw_decode(received.decode())
                except ValueError:
                    continue
                break
    except OSError as error:
        raise RequestError(f"{path}: {error}") from error
    if answer.get("error") is not None:
        raise RequestError(f"{method} {' '.join(map(str, parameters))[:300]}: {answer['error']}")
    return answer["result"]


def control(path, *words):
    """Runs a control command of the daemon with the socket, like ovs-appctl, and returns its output."""
    return request(path, str(words[0]), [str(word) for word in words[1:]])


def select(path, database, **tables):
    """The rows of tables, {table: [{column: value}]}, from a server's socket, in one transaction; give columns for each table."""
    operations = [{"op": "select", "table": table, "where": [], "columns": list(columns)} for table, columns in tables.items()]
    results = request(path, "transact", [database, *operations])
    wrong = [result for result in results if "error" in (result or {})]
    if wrong:
        raise RequestError(f"select in {database}: {wrong}")
    return {table: result["rows"] for table, result in zip(tables, results)}
