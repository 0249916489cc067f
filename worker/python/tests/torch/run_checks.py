"""A worker that runs the checks of a module, in order: run_checks.py MODULE FOLDER [BACKEND].

Leaves FOLDER/RANK.json: for each check "passed", or the traceback of the one that ended it.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path

import elasticrun.torch as hvd

module, folder = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, str(Path(__file__).parent / "checks"))
hvd.init()
hvd.barrier()
if len(sys.argv) > 3:
    hvd.init_process_group(sys.argv[3])
report = {}
checks = importlib.import_module(module)
names = [name for name in vars(checks) if name.startswith("check_")]
try:
    for name in names:
        try:
            getattr(checks, name)(hvd.rank(), hvd.size())
        except BaseException:
            report[name] = traceback.format_exc()
            raise
        report[name] = "passed"
    hvd.barrier()
finally:
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(report))
