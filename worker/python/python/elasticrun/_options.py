"""Options of the binary, as keywords of Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: Settings that bring hosts.
SOURCES = ("hosts", "hostfile", "host_discovery_script", "discovery", "launcher", "config")
#: Names in horovod.run, and those of our settings.
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


def flags(settings: Mapping[str, object]) -> list[str]:
    """The words of a command line; what is None or False is left out."""
    flags = []
    for name, value in settings.items():
        flag = "-np" if name == "np" else f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        # A list is one word at a time, but for the one setting that takes two.
        repeated = value if isinstance(value, list) and not name.endswith("_range") else [value]
        for each in repeated:
            words = each if isinstance(each, (tuple, list)) else () if each is True else (each,)
            flags += [flag, *map(str, words)]
    return flags


def named(variables: Iterable[str]) -> list[str]:
    """Options that send variables of the driver's environment to workers on other hosts. The names that only the driver
    reads are left out."""
    return [word for name in variables if not name.startswith("ELASTICRUN_") for word in ("--env", name)]
