"""A server of files on 127.0.0.1 that can be as bad as real ones are: for the tests of downloads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# forty rows of three columns, as a LIBSVM file
ROWS = b"".join(
    b"%d 1:%d 3:%d\n" % (1 - 2 * (i % 2), i + 1, 1 + i % 7) for i in range(40)
)


@dataclass
class Mirror:
    """What the server has, by path, and what happens to it; `asked` is the log of requests.

    cuts        the bytes after which the next answers end, one for each answer
    stalls      paths that send half and then nothing until `go` is set
    statuses    paths that answer with another code
    redirects   paths that lead to another address
    """

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    stalls: set[str] = field(default_factory=set)
    statuses: dict[str, int] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    tag: str | None = '"one"'
    length: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    half_sent: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    address: str = ""


def handler(mirror: Mirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            # a proxy is asked for whole addresses
            path = self.path
            wanted = self.headers.get("Range")
            mirror.asked.append((path, wanted))
            if path in mirror.redirects:
                self.send_response(302)
                self.send_header("Location", mirror.redirects[path])
                self.end_headers()
                return
            code = mirror.statuses.get(path, 200 if path in mirror.files else 404)
            if code != 200:
                self.send_error(code)
                return
            content = mirror.files[path]
            start = 0
            same = mirror.tag is None or self.headers.get("If-Range") == mirror.tag
            if wanted and mirror.ranges and same:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                self.send_response(206)
                last = len(content) - 1
                self.send_header(
                    "Content-Range", f"bytes {start}-{last}/{len(content)}"
                )
            else:
                self.send_response(200)
            if mirror.length:
                self.send_header("Content-Length", str(len(content) - start))
            if mirror.tag:
                self.send_header("ETag", mirror.tag)
            self.end_headers()
            rest = content[start:]
            if path in mirror.stalls:
                half = len(rest) // 2
                self.wfile.write(rest[:half])
                self.wfile.flush()
                rest = rest[half:]
                mirror.half_sent.set()
                mirror.go.wait(600)
            if mirror.cuts:
                rest = rest[: mirror.cuts.pop(0)]
            with suppress(OSError):  # whoever asked may have gone
                self.wfile.write(rest)

    return Handler


@contextmanager
def served() -> Iterator[Mirror]:
    """Run the server as long as the block."""
    mirror = Mirror()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(mirror))
    mirror.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield mirror
    finally:
        mirror.go.set()
        server.shutdown()
        server.server_close()
        thread.join()
