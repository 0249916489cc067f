"""A worker that runs the checks of a module, in order: run_checks.py FILE FOLDER [BACKEND].

Leaves FOLDER/RANK.json: for each check "passed", or the traceback of the one that ended it.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path

import elasticrun

module, folder = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(module.parent))
elasticrun.init()
checks = importlib.import_module(module.stem)
elasticrun.barrier()
if len(sys.argv) > 3:
    import elasticrun.torch

    elasticrun.torch.init_process_group(sys.argv[3])
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
    (folder / f"{elasticrun.rank()}.json").write_text(json.dumps(report))
