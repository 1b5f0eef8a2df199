"""The gate: whether stored releases stay within the thresholds someone set for them."""

from .checks import check_release as check_release
from .outcome import GateCheck as GateCheck
from .outcome import GateResult as GateResult
from .policy import Policy as Policy
from .policy import PolicyFile as PolicyFile
from .policy import read_policy as read_policy
from .reports import junit_xml as junit_xml
from .reports import sarif_log as sarif_log
from .several import GateVerdict as GateVerdict
from .several import check_releases as check_releases
