"""``chainrule play``: a local web app in which expressions, networks and GPTs can be tried.

``server`` answers the browser; ``sessions`` keeps each page's laboratories, processes (``worker``)
in which a ``network`` or a ``language`` model is trained; ``formulas`` draws expressions; ``app``
is the page, whose scripts are in ``script/``. The pages of graphs are those of ``explore``.
"""

from chainrule.play.server import PlayServer
from chainrule.play.settings import PlayError

__all__ = ["PlayServer", "PlayError"]
