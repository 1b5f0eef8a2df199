"""One HTML page per release, the certificate that may be published, and the report of a ledger."""

from .certificate import render_certificate as render_certificate
from .certificate import write_certificate as write_certificate
from .ledger import LedgerReport as LedgerReport
from .ledger import SecretAccount as SecretAccount
from .ledger import ledger_report as ledger_report
from .measurement import Measurement as Measurement
from .measurement import render_measurement as render_measurement
from .page import render_report as render_report
from .page import write_report as write_report
