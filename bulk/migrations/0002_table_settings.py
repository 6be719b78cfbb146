from django.db import migrations

# Room in each page for new versions of its rows: a row is written three times more, and none of its indexes with it.
# Autovacuum by absolute numbers, as for executions (docs/adr/0001).
SETTINGS = (
    "fillfactor = 60, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 50000,"
    " autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0"
)
NAMES = ", ".join(part.split("=")[0].strip() for part in SETTINGS.split(","))


class Migration(migrations.Migration):
    dependencies = [("bulk", "0001_initial")]

    operations = [
        migrations.RunSQL(
            f"ALTER TABLE bulk_bulkrecord SET ({SETTINGS})", f"ALTER TABLE bulk_bulkrecord RESET ({NAMES})"
        ),
    ]
