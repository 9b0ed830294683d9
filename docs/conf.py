"""How Sphinx builds the site: `make docs`, which needs neither a network nor PyTorch, JAX or CuPy."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import ozaki  # noqa: E402

project = "ozaki"
author = copyright = "the ozaki authors"
version = release = ozaki.__version__
html_title = f"ozaki {release}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
templates_path = ["_templates"]
exclude_patterns = ["_templates"]
nitpicky = True
nitpick_ignore = [("py:exc", "numpy.exceptions.AxisError"), ("py:exc", "numpy.linalg.LinAlgError")]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the notebooks are committed with their outputs

# The last two register operators with these libraries, which mocks do not let them do.
autodoc_mock_imports = ["jax", "torch", "ozaki.jax.primitive", "ozaki.torch.operators"]
autodoc_typehints = "none"  # the docstrings say what is taken, for people
# Where file names have no upper case, a class would overwrite the function that makes it.
autosummary_filename_map = {
    f"ozaki.{name}": f"ozaki.{name}-class"
    for name in ("Plan", "MPArray", "linalg.Cholesky", "linalg.QR", "distributed.Array")
}
autosummary_context = {  # classes whose methods and properties are for users, and which ("": all)
    "members": {
        "Accuracy": "",
        "Account": "bound, products",
        "Array": "T, conj, dtype, gather, redistribute",
        "Digits": "products",
        "MPArray": "",
        "Outline": "peak",
        "Plan": "native, products, reproducible, slices",
        "Residues": "moduli, products",
    },
}
napoleon_google_docstring = False
napoleon_use_param = napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
default_role = "py:obj"  # a name in backticks is a link where it is a public one, see `plain`

html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True


def plain(app: Any, environment: Any, node: Any, content: Any) -> Any:
    """A name in backticks that is no public one, as that of a parameter, is shown as code."""
    return content if node.get("reftype") == "obj" else None


def setup(app: Any) -> None:
    """Connect what this file adds to Sphinx."""
    app.connect("missing-reference", plain)
