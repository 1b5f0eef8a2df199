"""One function on many items: on this machine, on Ray or on Dask, with the same bits."""

from .mapping import available_workers as available_workers
from .mapping import goes_elsewhere as goes_elsewhere
from .mapping import parallel_map as parallel_map
from .places import EngineError as EngineError
from .progress import progress_bar as progress_bar
from .progress import progress_reports as progress_reports
