# The fork server of standby interpreters: it imports what a program imports, then forks interpreters that run the program.
#
#     python [OPTIONS] fork_server.py FD (SCRIPT | -m MODULE | -c CODE) [ARGUMENTS]
#
# FD is a socket to the agent:
#
#     agent:  the agent's process id, "auto" or modules with commas, modules to leave out with commas; one line each
#     server: "ready", modules | "leave-out", module, reason | "unfit", reason
#     agent:  "fork", with a socket for the interpreter
#     server: "forked", its process id | "unfit", reason
#
# An interpreter is a child of the agent, which is the subreaper of its orphans. It waits at its socket:
#
#     agent:       variables NAME=VALUE with zero bytes between them, with the pipes for stdout and stderr
#     interpreter: "started"; from then on it is an ordinary worker
#
# Server and interpreters end when their sockets close. Python 3.8 suffices.

# The globals with which a script starts. This line comes before any other.
FRESH = dict(globals())

import _socket
import ctypes
import gc
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import channels
import interpreter
import preloading
import script_imports

del sys.path[0]
# Programs may have modules of these names.
for module in (channels, interpreter, preloading, script_imports):
    del sys.modules[module.__name__]


def main():
    """Returns in each interpreter, with the program to run."""
    number = int(sys.argv[1])
    os.set_inheritable(number, False)
    channel = _socket.socket(fileno=number)
    program = sys.argv[2:]
    agent, wanted, left_out = channels.receive(channel, 0)[0].decode().split("\n")
    if not interpreter.SAFE_PATH:
        del sys.path[0]
    try:
        modules = preload(program, wanted, [name for name in left_out.split(",") if name])
    except preloading.LeaveOut as error:
        channels.send(channel, "leave-out", *error.args)
        os._exit(0)
    except script_imports.Unreadable as error:
        channels.send(channel, "unfit", error)
        os._exit(0)
    gc.collect()
    # So the collector writes to none of the shared pages.
    gc.freeze()
    channels.send(channel, "ready", ",".join(modules))
    own = serve(channel)
    interpreter.become_worker(own, int(agent))
    interpreter.set_arguments(program)
    return program


def preload(program, wanted, left_out):
    """Imports what the program imports, or what the user wants. Returns the names of the modules."""
    first = interpreter.first_directory(program)
    modules = script_imports.imports_of(program, first)
    beside = wanted != "auto" and not interpreter.SAFE_PATH
    if wanted != "auto":
        modules = [(name, []) for name in wanted.split(",")]
    if beside:
        # The user vouches for these modules, also for those beside the script.
        sys.path.insert(0, first)
    directory = os.getcwd()
    priority = preloading.lower_priority()
    preloading.load_all(modules, left_out)
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    os.chdir(directory)
    if beside:
        sys.path.remove(first)
    return list(dict.fromkeys(name for name, _ in modules))


def serve(channel):
    """Serves the agent, which ends this process. Returns in each interpreter, with its socket."""
    while True:
        data, fds = channels.receive(channel, 1)
        if not data or not fds:
            os._exit(0)
        own = _socket.socket(fileno=fds[0])
        if preloading.threads() > 1:
            channels.send(channel, "unfit", "a thread has started")
        else:
            try:
                if fork(channel):
                    return own
            except OSError as error:
                channels.send(channel, "unfit", error)
        own.close()


def fork(channel):
    """Forks an interpreter that becomes a child of the agent. Returns whether this process is the interpreter."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        child = -1
        try:
            child = os.fork()
            if child:
                os.write(writing, b"%d" % child)
        finally:
            if child:
                os._exit(0)
    os.close(writing)
    if parent == 0:
        os.close(reading)
        channel.close()
        return True
    pid = os.read(reading, 32)
    os.close(reading)
    # The end of its parent makes the interpreter a child of the agent.
    os.waitpid(parent, 0)
    channels.send(channel, "forked", pid.decode())
    return False


interpreter.run(main(), FRESH)
