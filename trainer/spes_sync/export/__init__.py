"""Models as Hugging Face folders, written and read without torch.

The sync server calls `export_model` when a job completes, `spes-sync export` when a person asks;
`load_hugging_face` is its inverse, for upcycling and continued training.
"""

from spes_sync.export.reader import load_hugging_face
from spes_sync.export.writer import ExportResult, export_model

__all__ = ["ExportResult", "export_model", "load_hugging_face"]
