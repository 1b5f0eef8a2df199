"""Logits of a classifier on CIFAR-10 under PAC noise; see docs/explanation/reproductions.md."""

import sys

from tacit_lab.studies.pac.logits import main

sys.exit(main("cifar10"))
