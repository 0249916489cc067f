"""A Kubernetes API server for tests: list and watch of pods, and a way to make things happen.

Started with the port to listen on (0: any); what a test says to it and hears is in stand_in.py.

After https://kubernetes.io/docs/reference/using-api/api-concepts: lists have a resource version and pages with a
continue token; a watch sends one JSON object a line from a version on; a version or token that has expired is
answered by 410, as a status or as an event of a watch that runs.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import stand_in


class Cluster:
    """The state, and what a test can order: each method takes the order's fields."""

    def __init__(self):
        self.changed = threading.Condition()
        self.version = 100
        self.pods = {}
        self.events = []
        self.oldest = 0
        self.uids = 0
        self.log = []
        self.failures = []
        self.broken = 0

    def pod(self, name, namespace="default", labels=None, limits=None, phase="Running", ready=True):
        self.uids += 1
        uid = f"{self.uids:08x}-0000-4000-8000-000000000000"
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels or {"app": "train"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "main", "resources": {"limits": limits or {}}}]},
            "status": {"phase": phase, "podIP": f"10.1.0.{self.uids}", "conditions": [condition]},
        }
        self.pods[name] = pod
        self.happened("ADDED", pod)
        return f"{name}.uid-{uid.split('-')[0]}"

    def status(self, name, **status):
        self.pods[name]["status"].update(status)
        self.happened("MODIFIED", self.pods[name])

    def delete(self, name, grace=30):
        """It is asked to end, and has `grace` seconds."""
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + grace))
        self.pods[name]["metadata"].update(deletionTimestamp=end, deletionGracePeriodSeconds=grace)
        self.happened("MODIFIED", self.pods[name])

    def gone(self, name):
        self.happened("DELETED", self.pods.pop(name))

    def happened(self, kind, pod):
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, json.loads(json.dumps(pod))))
        self.changed.notify_all()

    def expire(self):
        """What was before now is forgotten: who watches from there is told 410."""
        self.version += 1
        self.oldest = self.version
        self.changed.notify_all()

    def breaks(self):
        """All connections of watches end without a word."""
        self.broken += 1
        self.changed.notify_all()

    def fail(self, action, status, times=1, reason="", message="no", seconds=0):
        self.failures.append([action, times, status, reason, message, seconds])

    def calm(self):
        """No failures any more."""
        self.failures = []

    def calls(self):
        """The requests since the last time."""
        calls, self.log = self.log, []
        return calls

    # What it answers.

    def failure(self, action, headers):
        self.log.append({"action": action, "agent": headers["User-Agent"]})
        for failure in self.failures:
            if failure[0] == action and failure[1] > 0:
                failure[1] -= 1
                return failure[2], status(*failure[2:])
        return None

    def chosen(self, namespace, selector):
        wanted = dict(part.split("=") for part in selector.split(","))
        for pod in self.pods.values():
            labels = pod["metadata"]["labels"].items()
            if pod["metadata"]["namespace"] == namespace and wanted.items() <= labels:
                yield pod

    def list(self, namespace, query):
        pods = list(self.chosen(namespace, query["labelSelector"][0]))
        limit = int(query.get("limit", ["500"])[0])
        start, version = 0, self.version
        if "continue" in query:
            start, version = map(int, query["continue"][0].split("@"))
            if version < self.oldest:
                return 410, status(410, "Expired", "The provided continue parameter is too old")
        meta = {"resourceVersion": str(version)}
        if start + limit < len(pods):
            meta["continue"] = f"{start + limit}@{version}"
        return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": meta, "items": pods[start : start + limit]}


def status(code, reason, message, seconds=0):
    value = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    if seconds:
        value["details"] = {"retryAfterSeconds": seconds}
    return value


def handler(cluster):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            match = re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods", url.path)
            if not match:
                return self.answer(404, status(404, "NotFound", url.path))
            watches = query.get("watch", [""])[0] in ("1", "true")
            with cluster.changed:
                failure = cluster.failure("watch" if watches else "list", self.headers)
                if failure:
                    return self.answer(*failure)
                if not watches:
                    return self.answer(*cluster.list(match[1], query))
            return self.watch(match[1], query)

        def do_CONNECT(self):
            """As a proxy to any server, which is always this one."""
            with cluster.changed:
                cluster.log.append({"action": "connect", "path": self.path})
            self.send_response(200)
            self.end_headers()

        def answer(self, code, value):
            data = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def watch(self, namespace, query):
            seen = int(query["resourceVersion"][0])
            wanted = dict(part.split("=") for part in query["labelSelector"][0].split(","))
            with cluster.changed:
                broken = cluster.broken
                if seen < cluster.oldest:
                    return self.answer(410, status(410, "Expired", "too old resource version"))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            while True:
                with cluster.changed:
                    cluster.changed.wait_for(
                        lambda: cluster.version > seen or cluster.broken > broken or cluster.oldest > seen
                    )
                    events = [event for event in cluster.events if event[0] > seen]
                    expired = cluster.oldest > seen
                    ends = cluster.broken > broken
                    seen = cluster.version
                for _, kind, pod in events:
                    meta = pod["metadata"]
                    if meta["namespace"] == namespace and wanted.items() <= meta["labels"].items():
                        self.chunk({"type": kind, "object": pod})
                if expired:
                    self.chunk({"type": "ERROR", "object": status(410, "Expired", "too old resource version")})
                if expired or ends:
                    self.wfile.write(b"0\r\n\r\n" if expired else b"")
                    self.close_connection = True
                    return None

        def chunk(self, value):
            data = json.dumps(value).encode() + b"\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def log_message(self, *words):
            pass

    return Handler


if __name__ == "__main__":
    cluster = Cluster()
    stand_in.serve_http(handler(cluster), cluster, cluster.changed)
