"""Options of the binary as Python keywords."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping

from .errors import UsageError

#: Settings that name a source of hosts. ``launcher`` and ``config`` may.
SOURCES = (
    *("hosts", "hostfile", "host_discovery_script", "discovery", "launcher", "config"),
    *("aws_asg", "gcp_mig", "k8s", "slurm", "spark"),
)
#: Option names of horovod.run, and the settings that they stand for.
SYNONYMS = {
    "num_proc": "np",
    "min_num_proc": "min_np",
    "max_num_proc": "max_np",
    "slots": "slots_per_host",
    "cooldown_range": "blacklist_cooldown_range",
    "network_interfaces": "network_interface",
    "use_gloo": "gloo",
    "use_mpi": "mpi",
}


def sources(settings: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """The sources of hosts that ``settings`` name, else the variables of ``environment``."""
    found = {}
    for name in SOURCES:
        value = settings.get(name)
        if value is None or value is False:
            value = environment.get(f"ELASTICRUN_{name.upper()}")
            # The only switch among them. Its variable turns it off by one of these words.
            if name == "slurm" and value in ("false", "no", "off", "0"):
                continue
        if value:
            found[name] = value
    return found


def flags(settings: Mapping[str, object]) -> list[str]:
    """Settings as words of a command line. Settings that are None or False are left out."""
    flags = []
    for name, value in settings.items():
        flag = "-np" if name == "np" else f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        # A list repeats its flag once for each element, except for ranges, whose flag takes two words.
        repeated = value if isinstance(value, list) and not name.endswith("_range") else [value]
        for each in repeated:
            words = each if isinstance(each, (tuple, list)) else () if each is True else (each,)
            flags += [flag, *map(str, words)]
    return flags


def named(variables: Iterable[str]) -> list[str]:
    """Options that pass ``variables`` of the driver's environment to workers on other hosts. Variables that only the driver
    reads are left out."""
    return [word for name in variables if not name.startswith("ELASTICRUN_") for word in ("--env", name)]


@contextlib.contextmanager
def keywords(settings: Iterable[str]) -> Iterator[None]:
    """Refuses a keyword as Python does, if the driver that starts in the block has no such option. Then nothing has started.

    Args:
        settings: the keywords that the caller has given beside the named ones.

    Raises:
        TypeError: a keyword is no option. The message has the option with the nearest name, if there is one.
    """
    try:
        yield
    except UsageError as error:
        for name in settings:
            flag = f"--{name.replace('_', '-')}"
            found = re.search(rf"{re.escape(flag)}: no such option; (?:did you mean --([a-z0-9-]+)\?)?", str(error))
            if found:
                near = f": did you mean {found[1].replace('-', '_')}?" if found[1] else ""
                raise TypeError(f"run() got an unexpected keyword argument {name!r}{near}") from error
        raise
