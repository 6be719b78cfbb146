from django.db import models


class Loop(models.Model):
    """When a loop of the house last ticked, by the database's clock, and since when it has done so without a gap."""

    name = models.CharField(max_length=32, primary_key=True)
    ticked_at = models.DateTimeField()
    steady_since = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
