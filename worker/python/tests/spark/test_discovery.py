"""``--discovery spark:...``: the hosts of a cluster, for jobs whose agents run there already."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from cluster import HOSTS, JOIN_TOKEN, Cluster, context, eventually
from jobs import Bench
from support.ports import free_port

from elasticrun import _binary

#: Where the plugin is; `test_spark.sh` builds it.
PLUGINS = os.environ.get("ELASTICRUN_TEST_PLUGINS")
pytestmark = pytest.mark.skipif(PLUGINS is None, reason="ELASTICRUN_TEST_PLUGINS names no directory with the plugin")


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    """The binary's answer to a question about plugins or hosts."""
    command = [os.fspath(_binary.find()), *words, "--plugin-dir", str(PLUGINS)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def hosts(source: str) -> dict[str, tuple[int, str]]:
    """Slots and state of each host that a source gives."""
    answer = ask("hosts", "--json", "--discovery", source)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[0])
    return {host["id"]: (host["slots"], host["state"]) for host in found["hosts"]}


def page(cluster: Cluster) -> str:
    return f"http://127.0.0.1:{cluster.ui}"


def test_the_plugin_keeps_the_rules_of_plugins(cluster: Cluster):
    cluster.complete()
    answer = ask("plugin", "test", f"spark:master={page(cluster)}")
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_workers_of_a_master_are_hosts(bench: Bench, free: None):
    # Each worker has two GPUs.
    source = f"spark:master={page(bench.cluster)}"
    assert hosts(source) == dict.fromkeys(HOSTS, (2, "ready"))
    bench.cluster.remove_worker(HOSTS[2])
    assert set(hosts(source)) == set(HOSTS[:2])


def test_executors_of_an_application_are_hosts(bench: Bench, free: None):
    port = free_port()
    bench.cluster.enter()
    settings = {"ui__enabled": "true", "ui__port": port, "cores__max": 4, "executor__cores": 1}
    running = context(bench.cluster.master, **settings)

    def slots() -> int:
        return sum(slots for slots, _ in hosts(f"spark:ui=http://127.0.0.1:{port}").values())

    try:
        eventually(lambda: slots() == 4, "four executors of one core are there")
    finally:
        running.stop()


def test_what_is_no_page_of_sparks_is_named(cluster: Cluster):
    for source, said in {
        f"ui=http://127.0.0.1:{free_port()}": "has no answer",
        f"ui={page(cluster)}": "/api/v1/applications",
        f"master={cluster.master}": "expected the master's page",
    }.items():
        answer = ask("hosts", "--discovery", f"spark:{source}")
        assert answer.returncode == 5 and said in answer.stdout, answer


def test_a_job_with_agents_on_the_workers(bench: Bench):
    port, token = free_port(), bench.folder / "token"
    script = bench.folder / "train.py"
    script.write_text("import elasticrun as e\ne.init()\nprint('RANK', e.rank(), 'SUM', e.allreduce(1.0, e.Sum))\n")
    environment = bench.cluster.environment()
    binary = os.fspath(_binary.find())
    source = ["--plugin-dir", str(PLUGINS), "--discovery", f"spark:master={page(bench.cluster)},slots=1"]
    where = ["--launcher", "agent", "--listen", f"127.0.0.1:{port}", "--join-token-file", str(token)]
    token.write_text(JOIN_TOKEN)
    token.chmod(0o600)
    driver = subprocess.Popen(
        [binary, "-np", "3", *source, *where, "python3", str(script)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    agents = []
    try:
        for host in HOSTS:
            join = ["agent", "--host", host, "--join", f"127.0.0.1:{port}", "--join-token-file", str(token)]
            agents.append(subprocess.Popen([binary, *join], env=environment))
        output, _ = driver.communicate(timeout=120)
    finally:
        for process in [driver, *agents]:
            process.kill()
            process.wait()
    assert driver.returncode == 0, output
    assert output.count("SUM 3") == 3, output
