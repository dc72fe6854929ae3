"""Whether package indexes show the README well: ``python check_description.py WHEEL``.

Renders the description with PyPI's own library. Pictures and links must survive, and lead somewhere
from any page: none may be relative.
"""

import re
import sys
import zipfile
from email import message_from_bytes

from readme_renderer import markdown

with zipfile.ZipFile(sys.argv[1]) as wheel:
    (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
    description = message_from_bytes(wheel.read(name)).get_payload(decode=True).decode("utf-8")
html = markdown.render(description)
if html is None:
    sys.exit("the README cannot be rendered")
targets = re.findall(r'<(?:img|a)\b[^>]*?\b(?:src|href)="([^"]*)"', html)
relative = [target for target in targets if not target.startswith(("https://", "#"))]
if relative or "<img" not in html or "<table" not in html:
    sys.exit(f"the README does not render as it should; relative links: {relative}")
print(f"the README renders, with {len(targets)} links and pictures, all of them absolute")
