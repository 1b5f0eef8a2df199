"""One HTML page per release, and the certificate that may be published."""

from .certificate import render_certificate as render_certificate
from .certificate import write_certificate as write_certificate
from .page import render_report as render_report
from .page import write_report as write_report
