"""What may be asked of a table: one language of statistics, whatever the promise."""

from .counts import Count as Count
from .counts import CumulativeCounts as CumulativeCounts
from .counts import GroupBy as GroupBy
from .counts import Histogram as Histogram
from .counts import RowCount as RowCount
from .counts import TwoWayTable as TwoWayTable
from .fitted import Centroids as Centroids
from .fitted import Logistic as Logistic
from .language import bind_query as bind_query
from .moments import Correlation as Correlation
from .moments import CovarianceMatrix as CovarianceMatrix
from .moments import LeastSquares as LeastSquares
from .moments import Mean as Mean
from .moments import PrincipalComponents as PrincipalComponents
from .moments import SecondMoments as SecondMoments
from .moments import StandardDeviation as StandardDeviation
from .moments import Sum as Sum
from .moments import Variance as Variance
from .quantiles import Median as Median
from .quantiles import Quantiles as Quantiles
from .ratios import Ratio as Ratio
from .statistic import Columns as Columns
from .statistic import Query as Query
from .statistic import SumQuery as SumQuery
