"""The embedded stack and its supervisor."""
