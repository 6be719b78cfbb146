from django.db import migrations

# docs/adr/0001: room in each page for new row versions, and autovacuum by absolute numbers.
HOT_TABLES = ("execution_execution", "execution_bucket")
SETTINGS = (
    "fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,"
    " autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,"
    " autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0"
)
NAMES = ", ".join(part.split("=")[0].strip() for part in SETTINGS.split(","))


class Migration(migrations.Migration):
    dependencies = [("execution", "0001_initial")]

    operations = [
        migrations.RunSQL(
            [f"ALTER TABLE {table} SET ({SETTINGS})" for table in HOT_TABLES],
            [f"ALTER TABLE {table} RESET ({NAMES})" for table in HOT_TABLES],
        ),
    ]
