"""Data: datasets in and out, samples to prompts and rows, rows to packed batches."""

from glmv.data.mix import batches
from glmv.data.packing import balance, decode_batch, pack, pack_prompts, pack_rows, plan, row
from glmv.data.sample import read, write

__all__ = [
    "balance",
    "batches",
    "decode_batch",
    "pack",
    "pack_prompts",
    "pack_rows",
    "plan",
    "read",
    "row",
    "write",
]
