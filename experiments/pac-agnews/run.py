"""Logits of a classifier on AG-News under PAC noise; see docs/explanation/reproductions.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pac_shared.logits import main

sys.exit(main("agnews"))
