"""Measure a layer of a language model, release its states, choose what to keep."""

from .audit.findings import Audit as Audit
from .audit.laboratory import Sizes as Sizes
from .audit.points import Point as Point
from .audit.recommendation import Recommendation as Recommendation
from .audit.recommendation import Wish as Wish
from .audit.recommendation import recommend as recommend
from .audit.sweep import sweep as sweep
from .audit.workflow import audit_layer as audit_layer
from .codebooks.codebook import Codebook as Codebook
from .geometry.estimation import Geometry as Geometry
from .geometry.estimation import measure_geometry as measure_geometry
from .geometry.fisher import fisher_information as fisher_information
from .geometry.margins import Margins as Margins
from .geometry.margins import measure_margins as measure_margins
from .geometry.projections import Projections as Projections
from .geometry.projections import measure_projections as measure_projections
from .geometry.projections import transplantation as transplantation
from .geometry.spread import adjacency_differences as adjacency_differences
from .geometry.utility import Utility as Utility
from .geometry.utility import measure_utility as measure_utility
from .noise.denoiser import Denoiser as Denoiser
from .noise.designs import designs_at_budget as designs_at_budget
from .noise.reading_alone import PosteriorBehaviour as PosteriorBehaviour
from .noise.release import HiddenRelease as HiddenRelease
from .noise.release import release as release
