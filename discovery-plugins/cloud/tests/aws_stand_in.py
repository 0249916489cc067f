"""AWS for tests: moto's server, what it lacks, and a way to make things happen.

Started with the port to listen on (0: any); what a test says to it and hears is in stand_in.py.

What is added to moto, after the API's documentation:
- CompleteLifecycleAction and RecordLifecycleActionHeartbeat (moto has neither, nor the state Terminating:Wait);
- the limit of 50 names for DescribeAutoScalingGroups and of 200 values for a filter;
- failures to order: throttling, refusals;
- a record of the calls.
"""

import io
import sys
import threading
from urllib.parse import parse_qsl

import boto3
import stand_in
from moto.autoscaling.models import autoscaling_backends
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

REGION = "eu-central-1"
groups = autoscaling_backends[DEFAULT_ACCOUNT_ID][REGION]
machines = ec2_backends[DEFAULT_ACCOUNT_ID][REGION]


class StandIn:
    """A WSGI application around moto's."""

    def __init__(self):
        self.moto = DomainDispatcherApplication(create_backend_app)
        self.lock = threading.Lock()
        self.calls = []
        self.failures = []

    def __call__(self, environ, start_response):
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size)
        environ["wsgi.input"] = io.BytesIO(body)
        ask = dict(parse_qsl(body.decode(errors="replace"))) if b"Action=" in body else {}
        action = ask.get("Action", "")
        own = "autoscaling" in environ.get("HTTP_AUTHORIZATION", "")
        with self.lock:
            if environ.get("HTTP_USER_AGENT", "").startswith("Boto3"):
                failure = None
            else:
                self.calls.append({"action": action, **ask})
                failure = self.failure(action) or too_many(action, ask)
        if failure:
            return refuse(start_response, own, **failure)
        if action == "CompleteLifecycleAction":
            return self.complete(ask, start_response)
        if action == "RecordLifecycleActionHeartbeat":
            return self.heartbeat(ask, start_response)
        return self.moto(environ, start_response)

    def failure(self, action):
        for failure in self.failures:
            if failure["action"] in (action, "*") and failure["times"] > 0:
                failure["times"] -= 1
                keys = ("status", "code", "message", "headers", "body")
                return {key: failure[key] for key in keys if key in failure}
        return None

    def complete(self, ask, start_response):
        waiting = member(ask["InstanceId"])
        if not is_waiting(ask, waiting):
            return no_action(ask, start_response)
        # Its last states pass quickly, and then the group does not list it any more.
        groups.autoscaling_groups[waiting.auto_scaling_group_name].instance_states.remove(waiting)
        if ask["LifecycleActionResult"] == "CONTINUE":
            machines.terminate_instances([waiting.instance_id])
        return answer(start_response, "CompleteLifecycleAction")

    def heartbeat(self, ask, start_response):
        if not is_waiting(ask, member(ask["InstanceId"])):
            return no_action(ask, start_response)
        return answer(start_response, "RecordLifecycleActionHeartbeat")


def is_waiting(ask, waiting):
    hook = f"{ask['AutoScalingGroupName']}_{ask['LifecycleHookName']}"
    return (
        waiting is not None
        and waiting.auto_scaling_group_name == ask["AutoScalingGroupName"]
        and waiting.lifecycle_state == "Terminating:Wait"
        and hook in groups.lifecycle_hooks
    )


def too_many(action, ask):
    names = [key for key in ask if key.startswith("AutoScalingGroupNames.")]
    if len(names) > 50:
        message = "The number of group names that may be passed in is limited to 50"
        return {"status": 400, "code": "ValidationError", "message": message}
    if sum(key.startswith("Filter.1.Value.") for key in ask) > 200:
        message = "The maximum number of filter values specified on a single call is 200"
        return {"status": 400, "code": "FilterLimitExceeded", "message": message}
    return None


def no_action(ask, start_response):
    message = f"No active Lifecycle Action found with instance ID {ask['InstanceId']}"
    return refuse(start_response, True, status=400, code="ValidationError", message=message)


def answer(start_response, action):
    start_response("200 OK", [("Content-Type", "text/xml")])
    space = "http://autoscaling.amazonaws.com/doc/2011-01-01/"
    return [
        f'<{action}Response xmlns="{space}"><{action}Result/>'
        f"<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></{action}Response>".encode()
    ]


def refuse(start_response, own, status, code="", message="", headers=(), body=None):
    headers = [("Content-Type", "text/xml"), *map(tuple, headers)]
    start_response(f"{status} Refused", headers)
    if body is not None:
        return [body.encode()]
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    if own:
        space = "http://autoscaling.amazonaws.com/doc/2011-01-01/"
        text = f'<ErrorResponse xmlns="{space}">{error}<RequestId>1</RequestId></ErrorResponse>'
    else:
        text = f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"
    return [text.encode()]


def member(instance):
    for group in groups.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance_id == instance:
                return state
    return None


class Orders:
    """What a test can order. Each method takes the order's fields and gives what is answered."""

    def __init__(self, stand_in, port):
        self.stand_in = stand_in
        access = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": REGION}
        endpoint = f"http://127.0.0.1:{port}"
        self.scaling = boto3.client("autoscaling", endpoint_url=endpoint, **access)
        self.ec2 = boto3.client("ec2", endpoint_url=endpoint, **access)
        self.image = self.ec2.describe_images()["Images"][0]["ImageId"]

    def group(self, name, desired=0, type="t3.micro", tags=None, spot=False):
        config = f"{type}-{'spot' if spot else 'plain'}"
        if config not in groups.launch_configurations:
            self.scaling.create_launch_configuration(
                LaunchConfigurationName=config,
                ImageId=self.image,
                InstanceType=type,
                **({"SpotPrice": "1"} if spot else {}),
            )
        self.scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchConfigurationName=config,
            MinSize=0,
            MaxSize=5000,
            DesiredCapacity=desired,
            AvailabilityZones=[f"{REGION}a"],
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in (tags or {}).items()],
        )
        return self.members(name)

    def members(self, name):
        return [state.instance_id for state in groups.autoscaling_groups[name].instance_states]

    def desired(self, name, count):
        self.scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=count)
        return self.members(name)

    def life(self, id, state):
        member(id).lifecycle_state = state

    def life_of(self, id):
        found = member(id)
        return found and found.lifecycle_state

    def health(self, id, health):
        member(id).health_status = health

    def terminate(self, id):
        """The instance ends, and its group has not noticed."""
        machines.get_instance(id)._state.name, machines.get_instance(id)._state.code = "terminated", 48

    def forget(self, id):
        """The group lets go of an instance."""
        state = member(id)
        state.auto_scaling_group.instance_states.remove(state)

    def address(self, id, private):
        machines.get_instance(id).nics[0].private_ip_address = private

    def address_of(self, id):
        return machines.get_instance(id).private_ip

    def tag(self, id, key, value):
        self.ec2.create_tags(Resources=[id], Tags=[{"Key": key, "Value": value}])

    def hook(self, group, name, seconds):
        self.scaling.put_lifecycle_hook(
            AutoScalingGroupName=group,
            LifecycleHookName=name,
            HeartbeatTimeout=seconds,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            DefaultResult="ABANDON",
        )

    def fail(self, **failure):
        """The next `times` calls of `action` are answered with `status` and `headers`, and with `code` and `message` or
        with `body`."""
        with self.stand_in.lock:
            self.stand_in.failures.append(failure)

    def tls(self):
        """Listens on a second port with TLS. Gives the port, and the certificate of who signed for 127.0.0.1."""
        context, authority = stand_in.tls()
        return {"port": listen(self.stand_in, 0, context).port, "authority": authority}

    def calls(self):
        """The calls since the last time."""
        with self.stand_in.lock:
            calls, self.stand_in.calls = self.stand_in.calls, []
        return calls


def listen(stand_in, port, context=None):
    server = make_server(
        "127.0.0.1", port, stand_in, threaded=True, request_handler=MotoRequestHandler, ssl_context=context
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    aws = StandIn()
    server = listen(aws, int(sys.argv[1]))
    stand_in.serve(server.port, Orders(aws, server.port))
