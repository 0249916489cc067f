"""Compute Engine for tests: the REST shapes that the plugin reads, and a way to make things happen.

Started with the port to listen on (0: any); what a test says to it and hears is in stand_in.py.

Shapes after https://cloud.google.com/compute/docs/reference/rest/v1: instanceGroupManagers.listManagedInstances
(POST, zonal and regional), instances.get and list, machineTypes.get, and the error body. Pages are of `page`
instances. It also gives access tokens, as the metadata service and as an OAuth server do.
"""

import functools
import json
import re
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, parse_qsl, urlsplit

import stand_in

API = "https://www.googleapis.com/compute/v1"


class Cloud:
    """The state, and what a test can order: each method takes the order's fields."""

    def __init__(self):
        self.lock = threading.Lock()
        self.groups = {}
        self.types = {}
        self.log = []
        self.failures = []
        self.vanishing = set()
        self.pages = 500
        self.numbers = 1000
        self.current = "t"
        self.revoked = set()

    def group(self, path, zones, desired=0, type="n2-standard-8", labels=None, accelerators=0, spot=False):
        """A group at `projects/P/zones/Z/instanceGroupManagers/N`; its instances are spread over `zones`."""
        self.groups[path] = {
            "zones": zones,
            "type": type,
            "labels": labels or {},
            "accelerators": accelerators,
            "spot": spot,
            "members": [],
        }
        return self.desired(path, desired)

    def type(self, name, accelerators):
        self.types[name] = accelerators

    def desired(self, path, count):
        group = self.groups[path]
        members = group["members"]
        while len(members) < count:
            zone = group["zones"][len(members) % len(group["zones"])]
            self.make(path, group, f"{path.rsplit('/')[-1]}-{len(members):04}", zone)
        del members[count:]
        return self.members(path)

    def make(self, path, group, name, zone):
        self.numbers += 1
        group["members"].append(
            {
                "project": path.split("/")[1],
                "name": name,
                "zone": zone,
                "number": str(self.numbers),
                "status": "RUNNING",
                "action": "NONE",
                "health": None,
                "labels": dict(group["labels"]),
                "address": f"10.{self.numbers >> 16 & 255}.{self.numbers >> 8 & 255}.{self.numbers & 255}",
            }
        )

    def members(self, path):
        return [f"{one['name']}.{one['number']}" for one in self.groups[path]["members"]]

    def set(self, id, **values):
        """New `status`, `action`, `health`, `address` or `labels` of a member."""
        self.find(id).update(values)

    def recreate(self, id):
        """The instance is made anew: the same name and address, another number."""
        self.numbers += 1
        one = self.find(id)
        one["number"] = str(self.numbers)
        return f"{one['name']}.{one['number']}"

    def find(self, id):
        for group in self.groups.values():
            for one in group["members"]:
                if f"{one['name']}.{one['number']}" == id:
                    return one
        raise KeyError(id)

    def vanish(self, name):
        """Its group lists an instance that is not there any more when it is asked for."""
        self.vanishing.add(name)

    def page(self, size):
        self.pages = size

    def fail(self, action, status, times=1, reason="", message="no", headers=None, body=None):
        self.failures.append([action, times, status, reason, message, headers or {}, body])

    def revoke(self, token):
        """The access token that was given until now is refused from now on, and `token` is given."""
        self.revoked.add(self.current)
        self.current = token

    def tls(self):
        """Listens on a second port with TLS. Gives the port, and the certificate of who signed for 127.0.0.1."""
        context, authority = stand_in.tls()
        return {"port": stand_in.listen(handler(self), 0, context), "authority": authority}

    def calls(self):
        """The requests since the last time."""
        calls, self.log = self.log, []
        return calls

    # What it answers.

    def answer(self, method, path, query, headers, form):
        kinds = [
            ("POST", r"/compute/v1/(projects/.+/instanceGroupManagers/[^/]+)/listManagedInstances", self.managed),
            ("GET", r"/compute/v1/projects/([^/]+)/zones/([^/]+)/instances/([^/]+)", self.get_instance),
            ("GET", r"/compute/v1/projects/([^/]+)/zones/([^/]+)/instances", self.list_instances),
            ("GET", r"/compute/v1/projects/[^/]+/zones/[^/]+/machineTypes/([^/]+)", self.machine_type),
        ]

        def called(handler, match, query):
            return handler(query, *match.groups())

        with self.lock:
            action, found = method, lambda query: error(404, "notFound", path)
            for wanted, pattern, handler in kinds:
                match = re.fullmatch(pattern, path)
                if match and method == wanted:
                    action = handler.__name__
                    found = functools.partial(called, handler, match)
                    break
            if path.endswith("/token"):
                action, found = "token", lambda query: (200, self.token())
            if path.endswith(":generateAccessToken"):
                given = {"accessToken": self.current, "expireTime": "2100-01-01T00:00:00Z"}
                action, found = "impersonate", lambda query: (200, given)
            if path.startswith("/compute/") and headers.get("authorization", "")[len("Bearer ") :] in self.revoked:
                found = self.refuse
            self.log.append({"action": action, "path": path, "headers": headers, "form": form})
            for failure in self.failures:
                if failure[0] == action and failure[1] > 0:
                    failure[1] -= 1
                    status, body = error(failure[2], failure[3], failure[4])
                    return status, body if failure[6] is None else failure[6], failure[5]
            return (*found(query), {})

    def refuse(self, query):
        return error(401, "authError", "Invalid Credentials")

    def token(self):
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return {
            "access_token": self.current,
            "expires_in": 3600,
            "issued_token_type": kind,
            "token_type": "Bearer",
        }

    def managed(self, query, path):
        if path not in self.groups:
            return error(404, "notFound", f"The resource '{path}' was not found")
        page, rest = self.cut(query, self.groups[path]["members"])
        return 200, {"managedInstances": [managed(one) for one in page], **rest}

    def get_instance(self, query, project, zone, name):
        for group, one in self.everyone(project, zone):
            if one["name"] == name and name not in self.vanishing:
                return 200, instance(group, one)
        return error(404, "notFound", f"The resource '{name}' was not found")

    def list_instances(self, query, project, zone):
        page, rest = self.cut(query, list(self.everyone(project, zone)))
        return 200, {"items": [instance(*pair) for pair in page], **rest}

    def everyone(self, project, zone):
        for group in self.groups.values():
            for one in group["members"]:
                if one["project"] == project and one["zone"] == zone and one["status"]:
                    yield group, one

    def machine_type(self, query, name):
        if name not in self.types:
            return 200, {"name": name}
        count = self.types[name]
        return 200, {"name": name, "accelerators": [{"guestAcceleratorType": "x", "guestAcceleratorCount": count}]}

    def cut(self, query, items):
        size = min(int(query.get("maxResults", ["500"])[0]), self.pages)
        start = int(query.get("pageToken", ["at+0"])[0].split("+")[1])
        rest = {"nextPageToken": f"at+{start + size}"} if start + size < len(items) else {}
        return items[start : start + size], rest


def managed(one):
    url = f"{API}/projects/{one['project']}/zones/{one['zone']}/instances/{one['name']}"
    value = {"instance": url, "currentAction": one["action"]}
    if one["status"]:
        value.update(id=one["number"], instanceStatus=one["status"])
    if one["health"]:
        value["instanceHealth"] = [{"detailedHealthState": one["health"]}]
    return value


def instance(group, one):
    zone = f"{API}/projects/{one['project']}/zones/{one['zone']}"
    value = {
        "id": one["number"],
        "name": one["name"],
        "machineType": f"{zone}/machineTypes/{group['type']}",
        "labels": one["labels"],
        "networkInterfaces": [{"networkIP": one["address"]}],
        "scheduling": {"provisioningModel": "SPOT" if group["spot"] else "STANDARD"},
    }
    if group["accelerators"]:
        value["guestAccelerators"] = [{"acceleratorCount": group["accelerators"]}]
    return value


def error(status, reason, message):
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return status, {"error": {"code": status, "message": message, "errors": errors}}


def handler(cloud):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            form = json.loads(body) if body.startswith("{") else dict(parse_qsl(body))
            status, value, more = cloud.answer(self.command, url.path, parse_qs(url.query), headers, form)
            data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            self.send_response(status)
            for name, text in {"Content-Type": "application/json", "Content-Length": len(data), **more}.items():
                self.send_header(name, str(text))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

        def log_message(self, *words):
            pass

    return Handler


if __name__ == "__main__":
    cloud = Cloud()
    stand_in.serve_http(handler(cloud), cloud, cloud.lock)
