"""A standby interpreter: it becomes a worker, then runs the program as a fresh interpreter does."""

import atexit
import ctypes
import gc
import importlib.machinery
import linecache
import os
import runpy
import sys
import textwrap

import channels

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9

SAFE_PATH = getattr(sys.flags, "safe_path", bool(sys.flags.isolated))


def first_directory(program):
    """The directory in which a program looks for modules first."""
    if program[0] in ("-m", "-c"):
        return os.getcwd()
    return os.path.dirname(os.path.realpath(program[0]))


def become_worker(channel, agent):
    """Waits for the variables and pipes of a worker, and takes them over."""
    os.setsid()
    data, fds = channels.receive(channel, 2)
    if not data or len(fds) != 2:
        os._exit(0)
    # The signal comes at the end of the parent, which is the agent by now.
    if _LIBC.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(_SIGKILL)) or os.getppid() != agent:
        os._exit(1)
    for stream, fd in enumerate(fds, 1):
        os.dup2(fd, stream)
        os.close(fd)
    for variable in data.split(b"\0"):
        name, _, value = variable.partition(b"=")
        os.environb[name] = value
    _reseed(sys.modules)
    importlib.invalidate_caches()
    # At its end an interpreter collects the objects of modules, too.
    atexit.register(gc.unfreeze)
    channels.send(channel, "started")
    channel.close()


def _reseed(modules):
    """Seeds what a fresh interpreter seeds at random. The module `random` does so by itself."""
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "torch" in modules:
        modules["torch"].default_generator.seed()
    if "multiprocessing.process" in modules:
        modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def set_arguments(program):
    """Sets what an interpreter derives from its command line."""
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[-len(sys.argv) :] = program
    sys.argv = program[:1] + program[2:] if program[0] in ("-m", "-c") else program[:]
    if not SAFE_PATH:
        sys.path.insert(0, "" if program[0] == "-c" else first_directory(program))


def run(program, fresh):
    """Runs the program as the main module. `fresh` has the globals with which a script starts."""
    main = type(sys)("__main__")
    main.__dict__.clear()
    main.__dict__.update(fresh)
    if "__annotations__" in fresh:
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    try:
        if program[0] == "-m":
            runpy._run_module_as_main(program[1])
        else:
            exec(_compile(program, main, fresh), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # Frames of these files do not belong to the program.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, fresh["__file__"]):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.excepthook = lambda *_: None
        raise


def _compile(program, main, fresh):
    if program[0] == "-c":
        for name in ("__file__", "__cached__"):
            main.__dict__.pop(name, None)
        main.__loader__ = importlib.machinery.BuiltinImporter
        source = textwrap.dedent(program[1]) if sys.version_info >= (3, 14) else program[1]
        if sys.version_info >= (3, 13):
            # Tracebacks show its lines.
            linecache.cache["<string>"] = len(source), None, source.splitlines(True), "<string>"
        return compile(source, "<string>", "exec", dont_inherit=True)
    path = program[0]
    if sys.version_info >= (3, 9) and not os.path.isabs(path):
        path = os.path.join(os.getcwd(), path)
    main.__file__ = path
    main.__loader__ = type(fresh["__loader__"])("__main__", path)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
        raise SystemExit(2) from None
    return compile(source, path, "exec", dont_inherit=True)
