"""What all stand-ins do: they say where they listen, and follow the orders of a test."""

import contextlib
import json
import sys


def serve(port, orders, lock=contextlib.nullcontext()):
    """Prints {"port": N}. Then each line of standard input is an order as JSON, {"do": METHOD of `orders`, ...its
    arguments}, followed under `lock` and answered by one line: {"ok": RESULT} or {"error": WHY}. It ends with its
    standard input, so it never outlives a test."""
    print(json.dumps({"port": port}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            with lock:
                result = {"ok": getattr(orders, order.pop("do"))(**order)}
        except Exception as problem:
            result = {"error": repr(problem)}
        print(json.dumps(result), flush=True)


def serve_http(handler, orders, lock):
    """The same, beside a server of HTTP on the port that the command line names (0: any)."""
    serve(listen(handler, int(sys.argv[1])), orders, lock)


def listen(handler, port, context=None):
    """Serves HTTP, or with a context HTTPS, on a port (0: any). Gives the port."""
    import threading
    from http.server import ThreadingHTTPServer

    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def tls():
    """A context for 127.0.0.1, and the certificate of who signed for it."""
    import ssl

    import trustme

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, authority.cert_pem.bytes().decode()
