"""One HTML page per release: the verdict, the figure, the numbers, the assumptions."""

from .statistic.page import render_report as render_report
from .statistic.page import write_report as write_report
from .statistic.record import AttackRecord as AttackRecord
from .statistic.record import ReleaseRecord as ReleaseRecord
from .statistic.record import read_release as read_release
from .statistic.words import Verdict as Verdict
from .statistic.words import verdict as verdict
