"""Makes the modules beside the tests importable, and gives them endpoints."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
