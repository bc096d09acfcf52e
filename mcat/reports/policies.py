"""The table of the policies that come with the package."""

from __future__ import annotations

from collections.abc import Sequence

from mcat.agents.policy_names import packaged_policies


def policy_rows() -> Sequence[tuple[str, ...]]:
    """One row per packaged policy, the heading first."""
    heading = ("task", "level", "steps", "return", "file")
    return [heading] + [
        (
            item.path.stem.rpartition("-")[0],
            item.level,
            f"{item.step:,}",
            f"{item.mean_return:,.0f}",
            item.path.name,
        )
        for item in packaged_policies()
    ]
