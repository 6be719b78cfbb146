from django.db import models


class DispatchSwitch(models.Model):
    """What operators have switched off: while the row is there, nothing within its scope is sent.

    To switch on is to delete the row. Executions that wait for it carry its id in `held_by`; an id is never used twice,
    so a row that is held by a switch that is no more is known to be free.
    """

    class Scope(models.TextChoices):
        GLOBAL = "global"
        WORKSPACE = "workspace"
        DESTINATION = "destination"
        QUEUE = "queue"

    scope = models.CharField(max_length=12, choices=Scope.choices)
    value = models.CharField(
        max_length=300, blank=True, help_text="A workspace's id, a destination's host:port, a queue's name."
    )
    reason = models.CharField(max_length=500, blank=True)
    set_by = models.CharField(max_length=150, blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "dispatch switches"
        constraints = [models.UniqueConstraint(fields=["scope", "value"], name="dispatch_switch_once")]

    def __str__(self) -> str:
        return f"{self.scope} {self.value}".strip()
