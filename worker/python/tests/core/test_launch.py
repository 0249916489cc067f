"""elasticrun.run: results by rank, and an error class for each exit code."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading

import pytest

import elasticrun
from elasticrun import (
    _function_outcomes,
    _function_server,
    _function_worker,
    _local_addresses,
    _options,
    errors,
    launch,
)
from elasticrun._function_call import Address, Call, Failure, Result


def test_results_come_by_rank(start):
    start.script(
        """
        import elasticrun as e

        def work(a, *, b):
            e.init()
            total = e.allreduce(float(e.rank()), e.Sum)
            return e.rank(), e.size(), a, b, total
        """,
        "work.py",
    )
    text = start.alone("""
        import elasticrun, work
        print("RESULTS", elasticrun.run(work.work, ("x",), {"b": [1]}, np=3))
    """)
    assert "RESULTS [(0, 3, 'x', [1], 3.0), (1, 3, 'x', [1], 3.0), (2, 3, 'x', [1], 3.0)]" in text


def test_the_private_key_of_the_call_is_in_no_environment(start):
    start.script(
        """
        import json, os
        from elasticrun import _native

        def environment(pid):
            with open(f"/proc/{pid}/environ", "rb") as file:
                return file.read()

        def work():
            agent = os.getppid()
            with open(f"/proc/{agent}/stat") as file:
                driver = file.read().rpartition(")")[2].split()[1]
            key = json.loads(_native.call_identity())["key"].encode()
            seen = [environment(pid) for pid in ("self", agent, driver)]
            return len(key) > 100, all(seen), any(key[20:60] in text for text in seen)
        """,
        "work.py",
    )
    text = start.alone("""
        import elasticrun, work
        print("RESULTS", elasticrun.run(work.work, np=2))
    """)
    assert "RESULTS [(True, True, False), (True, True, False)]" in text


def test_a_function_of_the_main_module_travels(start):
    text = start.alone("""
        import sys
        sys.modules["cloudpickle"] = None
        import elasticrun

        class Answer:
            def __init__(self, value): self.value = value

        def work(): return Answer(42)

        if __name__ == "__main__":
            print("ANSWERS", [answer.value for answer in elasticrun.run(work, np=2)])
            try:
                elasticrun.run(lambda: 1)
            except TypeError as error:
                print(error)
    """)
    assert "ANSWERS [42, 42]" in text
    assert "the call cannot be pickled" in text
    assert "pip install cloudpickle" in text


def test_results_of_the_main_program_come_back_by_value(start):
    """cloudpickle has sent the function, so the workers have no main module with the classes of its results."""
    text = start.alone("""
        import dataclasses
        import elasticrun

        @dataclasses.dataclass
        class Answer:
            value: int

        def answers(): return Answer(42), Answer
        def closes_over(number): return lambda: (lambda: number)

        assert elasticrun.run(answers, np=2) == [(Answer(42), Answer)] * 2
        assert [result() for result in elasticrun.run(closes_over(7), np=1)] == [7]
        print("CAME BACK")
    """)
    assert "CAME BACK" in text


def test_a_result_that_nothing_can_pickle_is_named(start):
    text = start.alone("""
        import threading
        import elasticrun

        def locks(): return threading.Lock()

        try:
            elasticrun.run(locks)
        except elasticrun.errors.WorkerFailedError as error:
            print("RAISED", error)
    """)
    assert "what locks returned cannot be pickled" in text.split("RAISED")[1]


def test_a_call_that_nothing_can_pickle_is_named():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="make in the function what cannot travel"):
        elasticrun.run(lambda: lock)


@pytest.mark.parametrize(
    ("fn", "args", "words"),
    [
        ("python train.py", (), "fn 'python train.py': expected a function"),
        (print, "x", r"args 'x': expected a tuple or list of arguments, such as \('x',\)"),
        (print, b"x", "args b'x': expected a tuple or list"),
        (print, 5, "args 5: expected a tuple or list"),
    ],
)
def test_what_is_no_call_is_refused_at_once(fn, args, words):
    with pytest.raises(TypeError, match=words):
        elasticrun.run(fn, args)


def test_a_program_from_standard_input_needs_cloudpickle(start):
    program = start.script("""
        import sys
        sys.modules["cloudpickle"] = None
        import elasticrun

        def work(): return 1

        if __name__ == "__main__":
            try:
                elasticrun.run(work)
            except TypeError as error:
                print("REFUSED", error)
    """)
    job = start.command("/bin/sh", "-c", 'exec "$1" - <"$2"', "sh", sys.executable, str(program))
    assert "REFUSED work is of a main module that has no file" in job.succeed()


def test_a_function_of_the_main_module_runs_another(start):
    text = start.alone("""
        import sys
        sys.modules["cloudpickle"] = None
        import elasticrun

        def inner(): return 7
        def outer(): return elasticrun.run(inner)

        if __name__ == "__main__":
            print("INNER", elasticrun.run(outer))
    """)
    assert "INNER [[7]]" in text


def test_the_exception_of_a_worker_is_the_cause(start):
    text = start.alone("""
        import elasticrun

        class Lost(Exception):
            def __init__(self, *, where):
                super().__init__(where)
                self.where = where

            def __reduce__(self):
                return _lost, (self.where,)

        class Stubborn(Exception):
            def __init__(self, first, second):
                super().__init__("stubborn")

        def _lost(where): return Lost(where=where)
        def loses(): raise Lost(where="here")
        def is_stubborn(): raise Stubborn(1, 2)

        for fn in (loses, is_stubborn):
            try:
                elasticrun.run(fn)
            except elasticrun.errors.WorkerFailedError as error:
                print("CAUSE", repr(error.__cause__), isinstance(error.__cause__, Lost), error.results)
                text = error.__cause__.__cause__ or error.__cause__
                assert isinstance(text, elasticrun.errors.WorkerTraceback)
                print("TEXT", str(text).replace(chr(10), " "))
    """)
    causes = [line for line in text.splitlines() if line.startswith("CAUSE")]
    texts = [line for line in text.splitlines() if line.startswith("TEXT")]
    assert causes[0] == "CAUSE Lost('here') True {}"
    # Its pickle cannot be read, because its class wants other arguments.
    assert causes[1].startswith("CAUSE WorkerTraceback(")
    assert "rank 0 of round 0:" in texts[0] and "in loses" in texts[0]
    assert "in is_stubborn" in texts[1] and "Stubborn: stubborn" in texts[1]


def test_results_that_came_before_the_failure_are_there(start):
    start.script(
        """
        import pathlib, time
        import elasticrun as e

        def work(folder):
            e.init()
            e.barrier()
            if e.rank() == 0:
                return "from 0"
            while not pathlib.Path(folder, "came").exists():
                time.sleep(0.01)
            raise KeyError("mine")
        """,
        "work.py",
    )
    text = start.alone("""
        import pathlib, elasticrun, work
        from elasticrun import _function_outcomes
        folder = pathlib.Path(__file__).parent
        add = _function_outcomes.Outcomes.add

        def adds(self, message):
            add(self, message)
            (folder / "came").touch()

        _function_outcomes.Outcomes.add = adds
        try:
            elasticrun.run(work.work, (str(folder),), np=2)
        except elasticrun.errors.WorkerFailedError as error:
            print("RAISED", error.results, repr(error.__cause__))
    """)
    assert "RAISED {0: 'from 0'} KeyError('mine')" in text


def test_the_first_exception_of_the_newest_round_counts():
    outcomes = _function_outcomes.Outcomes()
    for round, name in ((1, "old"), (2, "first"), (2, "second"), (0, "newcomer")):
        outcomes.add(Failure(round, 0, "Traceback", pickle.dumps(KeyError(name))))
    outcomes.add(Result(2, 1, 2, pickle.dumps("value")))
    outcomes.add(Result(1, 0, 2, pickle.dumps("of the round before")))
    failed = errors.WorkerFailedError("why", 1)
    outcomes.explain(failed)
    assert repr(failed.__cause__) == "KeyError('first')"
    assert str(failed.__cause__.__cause__) == "rank 0 of round 2:\nTraceback"
    assert failed.results == {1: "value"}
    assert pickle.loads(pickle.dumps(failed)).results == {1: "value"}
    stopped = errors.JobStoppedError("by the user", 130)
    outcomes.explain(stopped)
    assert stopped.__cause__ is None


def test_a_result_that_the_caller_cannot_read_is_named():
    results = [Result(1, 0, 2, pickle.dumps("value")), Result(1, 1, 2, b"cnowhere\nmissing\n.")]
    with pytest.raises(errors.MissingResultsError, match=r"result of rank 1 cannot be read here \(No module") as failed:
        _function_outcomes.in_order(results)
    assert failed.value.results == {0: "value"}
    assert pickle.loads(pickle.dumps(failed.value)).results == {0: "value"}


def test_the_job_leaves_no_pipe_open(start):
    script = start.script("""
        import elasticrun
        def work(): return 1
        if __name__ == "__main__":
            print("RESULTS", elasticrun.run(work))
    """)
    text = start.command(sys.executable, "-X", "dev", str(script)).succeed()
    assert "RESULTS [1]" in text
    assert "ResourceWarning" not in text


def test_horovods_names_of_the_settings(start):
    start.script("def work(): return __import__('os').environ['RANK']", "work.py")
    text = start.alone("""
        import elasticrun, work
        more = dict(num_proc=2, min_num_proc=1, max_num_proc=2, cooldown_range=(1, 2), use_gloo=True, disable_cache=True)
        print("RANKS", elasticrun.run(work.work, (), None, hosts="localhost:2", use_mpi=None, **more))
        print("RANKS", elasticrun.run(work.work, (), {}, 2, 1, 3, cooldown_range=[1, 2]))
    """)
    assert text.count("RANKS ['0', '1']") == 2


def test_horovods_arguments(start):
    start.script("def work(): return __import__('os').environ['RANK']", "work.py")
    text = start.alone("""
        import elasticrun, work
        print("RANKS", elasticrun.run(func=work.work, num_proc=2, verbose=None))
        for wrong in ({}, {"fn": work.work, "func": work.work}):
            try:
                elasticrun.run(**wrong)
            except TypeError as error:
                print(error)
    """)
    assert "RANKS ['0', '1']" in text
    assert text.count("run() takes one function to call: fn, or func as in Horovod") == 2


def test_survivors_of_a_failure_bring_their_results(start):
    start.script(
        """
        import os, signal
        import elasticrun as e

        def work():
            e.init()
            state = e.ObjectState(step=0)

            @e.elastic.run
            def train(state):
                while state.step < 10:
                    e.barrier()
                    state.step += 1
                    state.commit()
                    if e.world().round == 1 and e.rank() == 0 and state.step == 4:
                        os.kill(os.getpid(), signal.SIGKILL)
                return e.rank(), e.world().round

            return train(state)
        """,
        "work.py",
    )
    text = start.alone("""
        import elasticrun, work
        results = elasticrun.run(work.work, np=3, min_np=2, hosts="localhost:3", blacklist="forever", verbose=1)
        print("RESULTS", results)
    """)
    assert "RESULTS [(0, 2), (1, 2)]" in text
    assert "DEBUG" in text


@pytest.mark.parametrize(
    ("error", "how", "words"),
    [
        (errors.WorkerFailedError, {"fn": "fails"}, "KeyError: 'mine'"),
        (errors.WorkerFailedError, {"fn": "returns_a_lock"}, "what returns_a_lock returned cannot be pickled"),
        (errors.UsageError, {"fn": "dies", "np": 0}, "-np"),
        (TypeError, {"fn": "dies", "no_such_setting": 1}, "unexpected keyword argument 'no_such_setting'"),
        (TypeError, {"fn": "dies", "elastic_timeot": 1}, "'elastic_timeot': did you mean elastic_timeout?"),
        (
            errors.TooFewWorkersError,
            {"fn": "dies", "np": 2, "min_np": 2, "hosts": "localhost:2", "blacklist": "forever", "elastic_timeout": "300ms"},
            "failed",
        ),
        (
            errors.MaxResetLimitExceededError,
            {"fn": "dies", "np": 2, "min_np": 1, "hosts": "localhost:2", "reset_limit": 0, "blacklist": "forever"},
            "failed",
        ),
        (errors.DiscoveryError, {"fn": "dies", "host_discovery_script": "/bin/false"}, "failed"),
        (errors.JobStoppedError, {"fn": "stops"}, "stopped by signal 15"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)  # fmt: skip
def test_each_exit_code_has_its_error(start, error, how, words):
    start.script(
        """
        import os, signal, threading
        import elasticrun as e

        def fails(): raise KeyError("mine")
        def returns_a_lock(): return threading.Lock()

        def dies():
            e.init()
            @e.elastic.run
            def train(state):
                e.barrier()
                if e.rank() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                e.barrier()
            train(e.ObjectState(step=0))

        def stops():
            e.init()
            os.kill(int(os.environ["DRIVER"]), signal.SIGTERM)
            signal.pause()
        """,
        "work.py",
    )
    how = dict(how)
    text = start.alone(f"""
        import os, subprocess, elasticrun, work
        from elasticrun import launch
        # The driver's own number, for a function that stops it.
        real = subprocess.Popen
        subprocess.Popen = lambda command, **more: real(
            ["/bin/sh", "-c", 'DRIVER=$$ exec "$@"', "sh", *command], **more)
        try:
            elasticrun.run(work.{how.pop("fn")}, **{how!r})
        except (elasticrun.errors.JobError, TypeError) as error:
            print("RAISED", type(error).__name__, getattr(error, "exit_code", None), str(error).replace(chr(10), " "))
    """)
    raised = next(line for line in text.splitlines() if line.startswith("RAISED"))
    assert f"RAISED {error.__name__} " in raised
    assert words in raised


def test_errors_can_be_pickled():
    for code in (*range(1, 8), 9, 143, -9):
        error = errors.from_exit_code(code, "why")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.exit_code) == (type(error), "why", code)
    assert type(errors.from_exit_code(143, "")) is errors.JobStoppedError
    assert type(errors.from_exit_code(9, "")) is errors.JobError


def test_settings_become_flags():
    given = {
        "np": 2,
        "min_np": None,
        "verbose": False,
        "push_binary": True,
        "blacklist_cooldown_range": ("1s", "2s"),
        "cooldown_range": [10, 100],
        "discovery": ["a", "b:c=1"],
        "hostfile": "/x y",
    }
    assert _options.flags(given) == [
        *["-np", "2", "--push-binary", "--blacklist-cooldown-range", "1s", "2s"],
        *[
            "--cooldown-range",
            "10",
            "100",
            "--discovery",
            "a",
            "--discovery",
            "b:c=1",
            "--hostfile",
            "/x y",
        ],
    ]


def test_hosts_of_this_machine_are_known():
    for local in (None, "localhost", "localhost:4", "localhost:2, 127.0.0.1:3"):
        assert launch._is_local({"hosts": local, "cooldown_range": (1, 2)}, {"ELASTICRUN_NP": "3"})
    for remote in ("a", "localhost:2,b:1", "[::1]:2"):
        assert not launch._is_local({"hosts": remote}, {})
        assert not launch._is_local({"hosts": None}, {"ELASTICRUN_HOSTS": remote})
    assert not launch._is_local({"discovery": ["static"]}, {})
    assert not launch._is_local({}, {"ELASTICRUN_HOST_DISCOVERY_SCRIPT": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("aws_asg", "group"), ("gcp_mig", "group"), ("k8s", "app=x"), ("slurm", True), ("spark", "yarn")],
)
def test_hosts_of_a_cloud_are_not_this_machine(name, value):
    assert not launch._is_local({name: value}, {})
    assert not launch._is_local({name: None, "hosts": "localhost"}, {f"ELASTICRUN_{name.upper()}": str(value).lower()})
    # False leaves a switch out, so that its variable counts.
    assert not launch._is_local({name: False}, {f"ELASTICRUN_{name.upper()}": str(value).lower()})


def test_a_switch_that_is_off_is_no_source():
    assert launch._is_local({"slurm": False}, {"ELASTICRUN_SLURM": "false"})


def test_a_master_of_spark_is_refused():
    with pytest.raises(ValueError, match=r"elasticrun\.spark\.run"):
        elasticrun.run(print, spark="yarn")
    with pytest.raises(ValueError, match=r"elasticrun\.spark\.run"):
        elasticrun.run(print, env={**os.environ, "ELASTICRUN_SPARK": "yarn"})


def test_loopback_is_the_last_address():
    found = _local_addresses.addresses()
    assert found[-1].startswith("127.") or found[-1] == "::1"
    assert len(found) == len(set(found))


def test_a_result_that_comes_twice_counts_once():
    with _function_server.FunctionServer(Call([], None, b""), "127.0.0.1") as server:
        for value in ("first", "again"):
            server._answer(pickle.dumps(Result(3, 0, 1, pickle.dumps(value))))
        assert server.results_by_rank() == ["again"]


def test_what_a_function_sends_before_its_end_reaches_the_caller(monkeypatch, this_job):
    taken = []
    with _function_server.FunctionServer(Call([], None, b""), "127.0.0.1", taken.append) as server:
        server.unlock(this_job["caller"])
        caller = _function_worker._Caller(Address(["127.0.0.1"], server._server.port), this_job["worker"])
        monkeypatch.setattr(_function_worker, "_caller", caller)
        _function_worker.progress({"epoch": 1})
        assert taken == [{"epoch": 1}]
    with pytest.raises(ConnectionError):
        _function_worker.progress({"epoch": 2})
    monkeypatch.setattr(_function_worker, "_caller", None)
    with pytest.raises(RuntimeError, match=r"not started by elasticrun.run"):
        _function_worker.progress(1)


def test_a_job_that_brings_nothing_is_an_error():
    with pytest.raises(elasticrun.ElasticrunError, match="no result came from rank"):
        _function_outcomes.in_order([])


def test_results_of_processes_that_joined_no_round_come_in_the_order_of_their_first_ranks():
    """As when a worker starts a script, which joins in its place: two of four were left, one of them later than the other."""
    results = [Result(0, rank, 4, pickle.dumps(f"from {rank}")) for rank in (3, 1)]
    assert _function_outcomes.in_order(results) == ["from 1", "from 3"]


def test_a_member_of_the_last_round_that_brings_nothing_is_an_error():
    with pytest.raises(elasticrun.ElasticrunError, match=r"rank\(s\) \[1\]"):
        _function_outcomes.in_order([Result(2, 0, 2, pickle.dumps(None))])


def test_ctrl_c_ends_the_job(start):
    script = start.script("""
        import os, signal
        import elasticrun, work
        # Tests that run in the background of a shell inherit that it is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            elasticrun.run(work.waits, np=2)
        except KeyboardInterrupt:
            print("INTERRUPTED")
    """)
    start.script(
        """
        import signal
        def waits():
            print("WAITS")
            signal.pause()
        """,
        "work.py",
    )
    job = start.command(sys.executable, str(script))
    job.until("WAITS")
    job.until("WAITS")
    os.killpg(job.process.pid, signal.SIGINT)
    assert "INTERRUPTED" in job.succeed()
