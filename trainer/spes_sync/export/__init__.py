"""Models as Hugging Face folders, written and read without torch.

The sync server calls `export_model` when a job completes, `spes-sync export` when a person asks;
`load_hugging_face` is its inverse, for continued training. `PublishedModel` reads a folder one
tensor at a time and `write_folder` writes one out of any tensors, for upcycling.
"""

from spes_sync.export.reader import PublishedModel, load_hugging_face
from spes_sync.export.writer import ExportResult, ExportSettings, export_model, write_folder

__all__ = [
    "ExportResult",
    "ExportSettings",
    "PublishedModel",
    "export_model",
    "load_hugging_face",
    "write_folder",
]
