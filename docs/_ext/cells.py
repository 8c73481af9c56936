"""The cells of a notebook, and what its recorded outputs are kept by."""

import ast
import hashlib
from pathlib import Path

import jupytext


def cells_of(path: Path) -> list[str]:
    """The code cells of a notebook."""
    return [cell.source.strip() for cell in jupytext.read(path).cells if cell.cell_type == "code"]


def fingerprint(source: str) -> str:
    """What a cell computes, as a number: layout and comments do not change it, anything else does."""
    return hashlib.sha256(ast.unparse(ast.parse(source)).encode()).hexdigest()
