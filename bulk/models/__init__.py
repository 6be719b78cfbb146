from .chunk import BulkChunk
from .job import BulkJob
from .record import BulkRecord

__all__ = ["BulkChunk", "BulkJob", "BulkRecord"]
