"""The bridge program: ``elasticrun --spark MASTER`` becomes it.

``python -m elasticrun.spark MASTER NP MIN_NP MAX_NP|- SPARES [OPTIONS of elasticrun run] -- COMMAND...``

Spark's own settings come from its configuration (``SPARK_CONF_DIR``) or ``PYSPARK_SUBMIT_ARGS``. Files that COMMAND names
are brought to the executors.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING

from ..errors import ElasticrunError, JobError, UsageError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from .counts import Counts


def main(words: list[str]) -> int:
    """Runs the job; gives its exit code."""
    from .. import _options
    from .context import warn_of
    from .job import run_job, say
    from .launch import DEFAULTS, own_variables

    master, np, min_np, max_np, spares = words[:5]
    end = words.index("--", 5)
    options, command = words[5:end], words[end + 1 :]
    try:
        context = _context(master)
    except ImportError:
        say(f"--spark: {sys.executable} has no pyspark: pip install pyspark, or set PYSPARK_DRIVER_PYTHON")
        return 2
    except Exception as error:  # Whatever py4j and Spark raise
        say(f"--spark {master}: {str(error).splitlines()[0]}")
        return 2
    try:
        counts = _counts(context, int(np), int(min_np), None if max_np == "-" else int(max_np))
        warn_of(context, counts, say)
        # Settings are variables, too; defaults of the bridge come before the options of the user.
        settings = {name: value for name, value in os.environ.items() if name.startswith("ELASTICRUN_")}
        flags = [*_options.flags(DEFAULTS), *options]
        environment = {**own_variables(), **settings, **_named(options)}
        run_job(context, counts, flags, _brought(context, command), environment, spares=int(spares))
    except JobError as error:
        # The driver has said why.
        return error.exit_code if 0 < error.exit_code < 256 else 1
    except ElasticrunError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        context.stop()
    return 0


def _named(options: list[str]) -> dict[str, str]:
    """Variables of this process that the user sends to the workers by ``--env NAME``."""
    behind = [word for before, word in itertools.pairwise(options) if before == "--env"]
    joined = [word.removeprefix("--env=") for word in options if word.startswith("--env=")]
    listed = os.environ.get("ELASTICRUN_ENV", "").split(";")
    return {name: os.environ[name] for name in (*behind, *joined, *listed) if name in os.environ}


def _context(master: str) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(master).setIfMissing("spark.app.name", "elasticrun")
    # Workers' lines are what a person looks at.
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    return SparkContext(conf=conf)


def _counts(context: SparkContext, np: int, min_np: int, max_np: int | None) -> Counts:
    """How many workers, completed by what Spark's configuration says.

    Raises:
        UsageError: they contradict each other. It has been said.
    """
    from .context import setting
    from .counts import Counts
    from .job import say

    try:
        return Counts.of(setting(context), context.defaultParallelism, np, min_np, max_np)
    except ValueError as error:
        say(f"--spark: {error}")
        raise UsageError(str(error), 2) from error


def _brought(context: SparkContext, command: list[str]) -> list[str]:
    """The command as executors run it: files of this machine lie in their working directory."""
    words = []
    for word in command:
        if os.path.isfile(word):
            context.addFile(word)
            word = f"./{os.path.basename(word)}"
        words.append(word)
    return words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
