"""The guide as a site. `make docs` stages what this folder and native/doc hold (tools/build_docs.py) and builds it into build/docs."""

project = "pyvma"
author = "the pyvma authors"
copyright = "the pyvma authors, BSD-3-Clause"

extensions = ["myst_parser"]
exclude_patterns = ["README.md"]
# A broken reference is an error: the build runs with -n -W.
nitpicky = True
# Headings are targets, as they are where the sources are looked at.
myst_heading_anchors = 4
html_theme = "furo"
html_title = "pyvma"
html_show_sphinx = False
html_copy_source = False
pygments_style = "default"
