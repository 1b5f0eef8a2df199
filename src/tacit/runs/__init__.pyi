"""How long something trains, when it stops, and how it survives a crash."""

from .run import Run as Run
