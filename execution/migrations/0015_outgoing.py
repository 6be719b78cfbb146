import django.db.models.deletion
from django.db import migrations, models

import chronos_site.infra.ids
import execution.domain.states


class Migration(migrations.Migration):
    dependencies = [
        ("execution", "0014_notifications"),
        ("tenancy", "0005_notifications"),
    ]

    operations = [
        migrations.CreateModel(
            name="Notification",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=chronos_site.infra.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("rule_id", models.UUIDField(null=True)),
                ("rule_name", models.CharField(default="", max_length=200)),
                ("channel_id", models.UUIDField()),
                ("channel_name", models.CharField(max_length=200)),
                (
                    "channel_kind",
                    models.CharField(
                        choices=[
                            ("slack", "Slack"),
                            ("pagerduty", "PagerDuty"),
                            ("webhook", "Webhook"),
                            ("email", "E-mail"),
                            ("apprise", "Apprise"),
                        ],
                        max_length=9,
                    ),
                ),
                (
                    "group_id",
                    models.UUIDField(help_text="Shared by what tells the same facts to several channels.", null=True),
                ),
                ("event", models.CharField(max_length=15)),
                ("title", models.CharField(max_length=300)),
                ("content", models.JSONField()),
                ("target", models.JSONField()),
                ("payload", models.JSONField(null=True)),
                (
                    "sequence_key",
                    models.CharField(default="", help_text="Of one key, one after the other.", max_length=100),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("PENDING", "PENDING"),
                            ("QUEUED", "QUEUED"),
                            ("RUNNING", "RUNNING"),
                            ("RETRYING", "RETRYING"),
                            ("SUCCEEDED", "SUCCEEDED"),
                            ("FAILED", "FAILED"),
                            ("CANCELLED", "CANCELLED"),
                            ("SKIPPED", "SKIPPED"),
                            ("EXPIRED", "EXPIRED"),
                        ],
                        default=execution.domain.states.State["PENDING"],
                        max_length=10,
                    ),
                ),
                ("state_reason", models.CharField(db_default="", default="", max_length=100)),
                ("due_at", models.DateTimeField()),
                ("claim_seq", models.PositiveIntegerField(db_default=0, default=0)),
                ("begun_seq", models.PositiveIntegerField(db_default=0, default=0)),
                ("unknown_outcomes", models.PositiveSmallIntegerField(db_default=0, default=0)),
                ("worker_id", models.UUIDField(null=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("flow_wait_s", models.FloatField(db_default=0, default=0)),
                ("attempt", models.PositiveIntegerField(db_default=0, default=0, help_text="Begun sends.")),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("last_status", models.PositiveSmallIntegerField(null=True)),
                ("last_error", models.CharField(db_default="", default="", max_length=64)),
                ("last_error_text", models.CharField(db_default="", default="", max_length=500)),
                ("last_duration_ms", models.FloatField(null=True)),
                ("traceparent", models.CharField(default="", max_length=55)),
                ("created_at", models.DateTimeField()),
                (
                    "workspace",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenancy.workspace",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    execution.domain.states.State["PENDING"],
                                    execution.domain.states.State["QUEUED"],
                                    execution.domain.states.State["RUNNING"],
                                    execution.domain.states.State["RETRYING"],
                                ],
                            )
                        ),
                        fields=["due_at"],
                        name="notification_open",
                    ),
                    models.Index(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    execution.domain.states.State["PENDING"],
                                    execution.domain.states.State["QUEUED"],
                                    execution.domain.states.State["RUNNING"],
                                    execution.domain.states.State["RETRYING"],
                                ],
                            ),
                            models.Q(("sequence_key", ""), _negated=True),
                        ),
                        fields=["sequence_key", "id"],
                        name="notification_sequence",
                    ),
                    models.Index(fields=["workspace", "-id"], name="notification_page"),
                    models.Index(
                        condition=models.Q(("finished_at__isnull", False)),
                        fields=["finished_at"],
                        name="notification_finished",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "PENDING",
                                    "QUEUED",
                                    "RUNNING",
                                    "RETRYING",
                                    "SUCCEEDED",
                                    "FAILED",
                                    "CANCELLED",
                                    "SKIPPED",
                                    "EXPIRED",
                                ],
                            )
                        ),
                        name="notification_state",
                    )
                ],
            },
        ),
    ]
