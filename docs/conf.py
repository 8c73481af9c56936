"""How Sphinx builds the site: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

from tapehead import __version__  # noqa: E402 (found through the path above)

project = "tapehead"
author = "The tapehead authors"
copyright = f"{author}, Apache-2.0"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "docstrings", "pages"]
exclude_patterns = ["_build", "_ext"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_class_signature = "mixed"
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_use_legacy_class_based = False
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"tapehead {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style, pygments_dark_style = "friendly", "github-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f8b", "color-brand-content": "#1f5f8b"},
    "dark_css_variables": {"color-brand-primary": "#7cc0ea", "color-brand-content": "#7cc0ea"},
}
