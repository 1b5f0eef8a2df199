"""One HTML page per release: the verdict, the figure, the numbers, the assumptions."""

from .certificate.page import render_certificate as render_certificate
from .comparison.page import render_comparison as render_comparison
from .pages import render_report as render_report
from .pages import write_certificate as write_certificate
from .pages import write_report as write_report
from .statistic.record import AttackRecord as AttackRecord
from .statistic.record import ReleaseRecord as ReleaseRecord
from .statistic.record import read_release as read_release
from .words import Verdict as Verdict
from .words import verdict as verdict
