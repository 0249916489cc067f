"""A start that waits for a node that never comes."""

import os
import threading

from elasticrun import ps

if os.environ["DMLC_ROLE"] != "worker":
    threading.Event().wait()
try:
    print("waits", flush=True)
    ps.start()
except KeyboardInterrupt:
    print("interrupted")
