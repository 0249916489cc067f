"""A worker that runs the checks of a module, in order: run_checks.py MODULE FOLDER.

Leaves FOLDER/rankN.json: for each check "passed", or the traceback of the one that ended it.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path

import elasticrun

module, folder = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, str(Path(__file__).parent / "checks"))
elasticrun.init()
checks = importlib.import_module(module)
elasticrun.barrier()
report = {}
try:
    for name in [name for name in vars(checks) if name.startswith("check_")]:
        try:
            getattr(checks, name)(elasticrun.rank(), elasticrun.size())
        except BaseException:
            report[name] = traceback.format_exc()
            raise
        report[name] = "passed"
    elasticrun.barrier()
finally:
    (folder / f"rank{elasticrun.rank()}.json").write_text(json.dumps(report))
