"""Benchmarks of the ops against eager PyTorch: `glmv bench`. Needs torch and numpy alone."""

from glmv.bench.compare import compare
from glmv.bench.run import Result, run
from glmv.bench.table import table

__all__ = ["Result", "compare", "run", "table"]
