"""One-to-one matching."""

import numpy as np
import numpy.typing as npt


def max_matching(edges: npt.NDArray[np.bool_]) -> int:
    """The largest number of pairs without a shared row or column, by augmenting paths (breadth first)."""
    neighbours = [np.flatnonzero(row).tolist() for row in edges]
    owner: dict[int, int] = {}  # column -> row
    partner: dict[int, int] = {}  # row -> column
    for root in range(len(neighbours)):
        came_from: dict[int, int] = {}  # column -> the row it was reached from
        free = _free_column(root, neighbours, owner, came_from)
        while free is not None:
            row = came_from[free]
            previous = partner.get(row)
            owner[free], partner[row] = row, free
            free = previous
    return len(partner)


def _free_column(
    root: int, neighbours: list[list[int]], owner: dict[int, int], came_from: dict[int, int]
) -> int | None:
    queue = [root]
    for row in queue:  # grows while it is read
        for column in neighbours[row]:
            if column in came_from:
                continue
            came_from[column] = row
            if column not in owner:
                return column
            queue.append(owner[column])
    return None
