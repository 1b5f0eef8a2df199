"""Statistics that follow from sums over rows: what they add up, and what is computed from it."""

from .counts import Count as Count
from .counts import CumulativeCounts as CumulativeCounts
from .counts import Histogram as Histogram
from .counts import Quantiles as Quantiles
from .counts import TwoWayTable as TwoWayTable
from .grouped import GroupBy as GroupBy
from .moments import Correlation as Correlation
from .moments import Covariance as Covariance
from .moments import Mean as Mean
from .moments import SecondMoments as SecondMoments
from .moments import StandardDeviation as StandardDeviation
from .moments import Sum as Sum
from .moments import Variance as Variance
from .query import SumQuery as SumQuery
from .query import sum_query as sum_query
from .regression import LeastSquares as LeastSquares
from .regression import PrincipalComponents as PrincipalComponents
