"""The bridge program: ``elasticrun --spark MASTER`` becomes it.

``python -m elasticrun.spark MASTER SLOTS [OPTIONS of elasticrun run] -- COMMAND...``

Spark's own settings come from its configuration (``SPARK_CONF_DIR``) or ``PYSPARK_SUBMIT_ARGS``. Files that COMMAND names
are brought to the executors.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import ElasticrunError, JobError

if TYPE_CHECKING:
    from pyspark import SparkContext


def main(words: list[str]) -> int:
    """Runs the job; gives its exit code."""
    from .counts import Counts
    from .context import warn_of
    from .job import run_job, say
    from .launch import DEFAULTS, own_variables
    from .. import _options

    master, slots = words[0], int(words[1])
    end = words.index("--", 2)
    options, command = words[2:end], words[end + 1 :]
    try:
        context = _context(master)
    except ImportError:
        say(f"--spark: {sys.executable} has no pyspark: pip install pyspark, or set PYSPARK_DRIVER_PYTHON")
        return 2
    except Exception as error:  # noqa: BLE001 - whatever py4j and Spark raise
        say(f"--spark {master}: {str(error).splitlines()[0]}")
        return 2
    try:
        # How many of them are needed is for the driver to know; here, that it is at least one.
        counts = Counts(1, 1, slots)
        warn_of(context, counts, say)
        # Settings are variables, too; defaults of the bridge come before the options of the user.
        settings = {name: value for name, value in os.environ.items() if name.startswith("ELASTICRUN_")}
        flags = [*_options.flags(DEFAULTS), *options]
        run_job(context, counts, flags, _brought(context, command), {**own_variables(), **settings})
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


def _context(master: str) -> SparkContext:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(master).setIfMissing("spark.app.name", "elasticrun")
    # Workers' lines are what a person looks at.
    conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    return SparkContext(conf=conf)


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
