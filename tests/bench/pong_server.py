"""`python pong_server.py PORT`: says on its screen that it is ready, and answers PONG to whatever comes, as
often as there are commands. Ctrl-C ends it well. Stands in for a node where only being there matters."""

import selectors
import socket
import sys


def main(port: int) -> int:
    waiting = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", port))
    waiting.register(listener, selectors.EVENT_READ)
    print("already compiled\ntry: redis-cli PING")
    print(f"ready on port {listener.getsockname()[1]}", flush=True)
    try:
        while True:
            for key, _ in waiting.select():
                if key.fileobj is listener:
                    waiting.register(listener.accept()[0], selectors.EVENT_READ)
                else:
                    answer(waiting, key.fileobj)
    except KeyboardInterrupt:
        return 0


def answer(waiting: selectors.BaseSelector, client: socket.socket) -> None:
    received = client.recv(1 << 20)
    if not received:
        waiting.unregister(client)
        client.close()
        return
    client.sendall(b"+PONG\r\n" * received.count(b"*"))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
