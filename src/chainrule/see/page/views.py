"""The pictures of a page: the whole graph, and the inside of every collapsed box.

In go an ``Explanation`` and its ``Picture``; out come views as plain data, the whole graph first.
"""

from __future__ import annotations

from typing import Any

from chainrule.see.drawing.layout import rank_boxes
from chainrule.see.drawing.picture import Picture
from chainrule.see.explanation import Explanation
from chainrule.see.page.data import layout_data, runs


def make_views(explanation: Explanation, picture: Picture) -> list[dict[str, Any]]:
    """Every view; boxes refer to the view of their inside by its number."""
    whole = layout_data(rank_boxes(picture))
    if picture.is_collapsed:
        whole["boxes"] = [[box.title, runs(box.nodes), None] for box in picture.boxes]
    return [whole]
