"""The program that ``elasticrun --spark MASTER`` executes.

``python -m elasticrun.spark MASTER NP MIN_NP MAX_NP|- SPARES NAME,... [OPTIONS of elasticrun run] -- COMMAND...``

``NAME,...`` are variables to pass to the workers. Settings of Spark come from its configuration (``SPARK_CONF_DIR``) or
``PYSPARK_SUBMIT_ARGS``. ``shell_command`` decides which files Spark copies to the executors.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ElasticrunError, JobError, UsageError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from .counts import Counts


def main(words: list[str]) -> int:
    """Runs the job and returns its exit code."""
    from .. import _options
    from .context import warn_of_settings
    from .job import report, run_job
    from .launch import DEFAULTS, driver_variables

    master, np, min_np, max_np, spares, passed = words[:6]
    end = words.index("--", 6)
    options, command = words[6:end], words[end + 1 :]
    try:
        context = _context(master)
    except ImportError:
        report(f"--spark: {sys.executable} has no pyspark: pip install pyspark, or set PYSPARK_DRIVER_PYTHON")
        return 2
    except Exception as error:  # py4j and Spark raise many types
        report(f"--spark {master}: {str(error).splitlines()[0]}")
        return 2
    folder = tempfile.TemporaryDirectory(prefix="elasticrun-")
    try:
        counts = _counts(context, int(np), int(min_np), None if max_np == "-" else int(max_np))
        warn_of_settings(context, counts, report)
        # Environment variables of settings are passed on. Defaults of the bridge precede the user's options.
        settings = {name: value for name, value in os.environ.items() if name.startswith("ELASTICRUN_")}
        flags = [*_options.flags(DEFAULTS), *options]
        environment = {**driver_variables(), **settings, **_variables(passed)}
        on_executors = _command_on_executors(context, command, Path(folder.name))
        run_job(context, counts, flags, on_executors, environment, spares=int(spares))
    except JobError as error:
        # The driver has printed the reason.
        return error.exit_code if 0 < error.exit_code < 256 else 1
    except ElasticrunError as error:
        report(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        context.stop()
        folder.cleanup()
    return 0


def _variables(names: str) -> dict[str, str]:
    """The variables of this process that ``--env NAME``, or a list ``env`` of a configuration file, passes to the workers."""
    return {name: os.environ[name] for name in names.split(",") if name in os.environ}


def _context(master: str) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(master).setIfMissing("spark.app.name", "elasticrun")
    # A progress bar would interfere with the output of workers.
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    return SparkContext(conf=conf)


def _counts(context: SparkContext, np: int, min_np: int, max_np: int | None) -> Counts:
    """The numbers of workers, with defaults from Spark's configuration.

    Raises:
        UsageError: they contradict each other. The message has been printed.
    """
    from .context import setting
    from .counts import Counts
    from .job import report

    try:
        return Counts.from_settings(setting(context), context.defaultParallelism, np, min_np, max_np)
    except ValueError as error:
        report(f"--spark: {error}")
        raise UsageError(str(error), 2) from error


def _command_on_executors(context: SparkContext, command: list[str], scratch: Path) -> list[str]:
    """The command for executors. Spark copies files and modules of this machine to them.

    Args:
        context: the context that copies.
        command: the words of the user.
        scratch: a directory that exists as long as the context.

    Raises:
        UsageError: two files have one name. The message has been printed.
    """
    from . import shell_command
    from .job import report

    if shell_command.runs_in_place(context.master):
        return command
    try:
        shipment = shell_command.plan(command, shell_command.file_size)
    except ValueError as error:
        report(f"--spark: {error}")
        raise UsageError(str(error), 2) from error
    for word in shipment.too_large:
        report(
            f"{word} is larger than {shell_command.MAX_BYTES >> 20} MiB and is not copied to the executors: put it into a file"
            " system that they share, and give its absolute path"
        )
    for file in shipment.files:
        context.addFile(file)
    if modules := shell_command.local_modules(shipment.folder, shipment.imports):
        archive = scratch / "elasticrun-modules.zip"
        shell_command.zip_modules(modules, shipment.folder, archive)
        context.addPyFile(str(archive))
    return shipment.words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
