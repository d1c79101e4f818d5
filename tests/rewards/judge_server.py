"""A judge on a loopback port that does what it is told: answers, fails, stalls, or talks nonsense."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# (number of the request, prompt) -> what to do: "text:..." replies, the other words are below.
Plan = Callable[[int, str], str]
STALL_SECONDS = 3.0


class JudgeServer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.prompts: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()
        self.stop = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server.handle(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the client hung up, which is what many tests are about

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        raw = request.rfile.read(int(request.headers["content-length"]))
        with self.lock:
            body = json.loads(raw)
            prompt = body["messages"][0]["content"]
            number = len(self.prompts)
            self.prompts.append(prompt)
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        try:
            self.act(request, self.plan(number, prompt))
        finally:
            with self.lock:
                self.busy -= 1

    def act(self, request: BaseHTTPRequestHandler, action: str) -> None:
        word, _, rest = action.partition(":")
        if word == "stall":
            self.stop.wait(STALL_SECONDS)
        elif word == "drip":
            self.drip(request)
        elif word == "close":
            request.close_connection = True
            request.connection.close()
        elif word == "half":
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            request.close_connection = True
        elif word == "status":
            status, _, after = rest.partition(":")
            respond(request, int(status), b"{}", {"Retry-After": after} if after else {})
        elif word == "raw":
            respond(request, 200, rest.encode())
        elif word == "huge":
            respond(request, 200, completion("1" * int(rest)))
        elif word == "gzip":
            respond(request, 200, b"\x1f\x8b", {"Content-Encoding": "gzip"})
        elif word == "late":
            time.sleep(0.05)
            respond(request, 200, completion(rest))
        else:
            respond(request, 200, completion(rest))

    def drip(self, request: BaseHTTPRequestHandler) -> None:
        """One byte at a time, so that no read ever times out."""
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not self.stop.wait(0.05):
            request.wfile.write(b" ")


def completion(text: str) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode()


def respond(
    request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def serving(plan: Plan) -> Iterator[JudgeServer]:
    server = JudgeServer(plan)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()
