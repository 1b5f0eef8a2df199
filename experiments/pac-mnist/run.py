"""Logits of a classifier on MNIST under PAC noise; see docs/explanation/reproductions.md."""

import sys

from tacit_lab.studies.pac.logits import main

sys.exit(main("mnist"))
