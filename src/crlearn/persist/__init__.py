"""Estimators, results and datasets in one file each: safetensors with a JSON header, never pickle.

Arrays become tensors; everything else becomes JSON in the file's metadata. Classes are named by the
tags of `crlearn.tags`, so that reading a file runs no code that the file could choose, and files
survive when a class moves. A checksum covers both parts. Whatever is wrong with a file (cut off,
altered, of another kind) ends in a `CorruptFileError`.
"""

from crlearn.persist._files import FORMAT, load, read_record, save, write_record
from crlearn.persist._values import plain

__all__ = ["FORMAT", "load", "plain", "read_record", "save", "write_record"]
