"""An explanation as HTML for notebooks: the tables of the text, no scripts.

Colours are taken from the surrounding page, so that light and dark both work.
"""

from __future__ import annotations

from chainrule.see import tables
from chainrule.see.explanation.model import Explanation
from chainrule.see.explanation.text import sections

_STYLE = """
.chainrule-explanation { font-family: system-ui, sans-serif; font-size: .9rem; line-height: 1.45;
  max-width: 60rem; overflow-x: auto }
.chainrule-explanation h4 { margin: 1.2em 0 .4em; font-size: 1em; font-weight: normal }
.chainrule-explanation table { border-collapse: collapse; margin: 0; font-size: inherit }
.chainrule-explanation :is(td, th) { padding: .2em .8em .2em 0; text-align: left;
  vertical-align: top; border: 0; background: none; color: inherit }
.chainrule-explanation thead th { border-bottom: 1px solid currentColor; font-weight: 600 }
.chainrule-explanation thead + tbody tr.first td { border-top: 1px solid rgba(128, 128, 128, .3) }
.chainrule-explanation :is(td, .indent) { font-family: ui-monospace, monospace; font-size: .95em;
  white-space: pre-wrap }
.chainrule-explanation .aside { opacity: .7 }
.chainrule-explanation .indent { padding-left: 1.2em }
"""


def as_html(explanation: Explanation) -> str:
    """The whole explanation as one ``<div>``."""
    parts = tables.as_html(*sections(explanation, width=160))
    return f'<div class="chainrule-explanation"><style>{_STYLE}</style>{parts}</div>'
