from .schedule import Schedule

__all__ = ["Schedule"]
