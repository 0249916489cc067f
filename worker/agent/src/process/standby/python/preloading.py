"""Imports modules, as long as the process can be forked afterwards."""

import fcntl
import importlib
import os
import stat

# Lower than that of workers by so much that it takes little of a busy processor, and still gets on.
LOWERED = 10


# What packages import only when they are used. torch does so for the first optimizer, which takes longer than its own import.
AT_FIRST_USE = {"torch": "torch._dynamo"}


class LeaveOut(Exception):
    """A module, and why the process cannot be forked after its import."""


def load_all(modules, left_out):
    """Imports modules, each with names of it, except for those that are left out."""
    before = set(_descriptors())
    packages = {name.split(".")[0] for name, _ in modules}
    at_first_use = [(AT_FIRST_USE[package], []) for package in packages if package in AT_FIRST_USE]
    for name, names in modules + at_first_use:
        if any((name + ".").startswith(other + ".") for other in left_out):
            continue
        try:
            _load(name, names)
        except BaseException as error:
            raise LeaveOut(name, f"its import fails: {type(error).__name__}: {error}") from error
        reason = _why_unforkable(before)
        if reason:
            raise LeaveOut(name, reason)


def threads():
    """The number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


def lower_priority():
    """Lowers the priority of this process if it may raise it again. Returns the priority before."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    child = os.fork()
    if child == 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, LOWERED)
            os.setpriority(os.PRIO_PROCESS, 0, before)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] == 0:
        os.setpriority(os.PRIO_PROCESS, 0, LOWERED)
    return before


def _load(name, names):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The program reports it, or does without.
        if error.name and (name + ".").startswith(error.name + "."):
            return
        raise
    for one in names:
        try:
            # A package may import a name at its first use.
            getattr(module, one)
        except AttributeError:
            if hasattr(module, "__path__"):
                _load(name + "." + one, [])


def _why_unforkable(before):
    """What forked processes would lack, or would share with each other."""
    if threads() > 1:
        # OpenBLAS ends its threads at a fork, and starts them again when it needs them.
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    if threads() > 1:
        return "its import starts a thread"
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return "its import starts a process"
    except ChildProcessError:
        pass
    for fd, target in _descriptors().items():
        if fd not in before and not _is_shareable(fd, target):
            return f"its import keeps {target} open"
    return None


def _descriptors():
    targets = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            targets[int(name)] = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:
            pass  # The descriptor of the list itself.
    return targets


def _is_shareable(fd, target):
    try:
        reads_only = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        return target == "/dev/null" or (reads_only and stat.S_ISREG(os.fstat(fd).st_mode))
    except OSError:
        return True  # Closed meanwhile.
