"""A page of another site, in a real browser: what it sends to the gateway is turned away, links to it are not."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

from playwright.sync_api import Browser, expect
from tests.gateway.running import Gateway

import holdfast

SEND = """async (to) => {
    await fetch(`${to}/v1/queues/victim/flush`, {method: "POST", mode: "no-cors"});
    await fetch(`${to}/push`, {method: "POST", mode: "no-cors", body: "forged"});
    await fetch(`${to}/get`, {mode: "no-cors"});
}"""


@contextlib.contextmanager
def other_site() -> Iterator[str]:
    """A page of somebody else."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>evil</title>")

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_another_sites_page_changes_nothing(browser: Browser, gateway: Gateway, queue: holdfast.Queue) -> None:
    queue.add("victim", "mine")
    queue.add("default", "mine")
    with other_site() as evil:
        page = browser.new_page()
        page.goto(evil)
        answers: list[int] = []
        page.on("response", lambda answer: answers.append(answer.status))
        page.evaluate(SEND, gateway.url)
        page.set_content(f"<a href='{gateway.url}/console/queue?name=victim'>look</a>")
        page.get_by_role("link").click()
        expect(page.locator("h1")).to_contain_text("victim")
        page.close()
    assert answers[:3] == [403, 403, 403]
    assert queue.length("victim") == 1 and queue.length("default") == 1
