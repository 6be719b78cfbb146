"""The words of failed executions, for `q` of GET /v1/executions, and their index (docs/adr/0009-text-search.md).

The workspace is one of the words, so that one index answers for a workspace alone. The predicate keeps the index off
the way of everything that succeeds. Declared immutable, as an index asks: array_to_string is stable only for arrays of
types whose text depends on settings, which text does not.
"""

from django.db import migrations

FUNCTION = r"""
CREATE FUNCTION execution_failure_words(
    workspace_id uuid, reason text, error text, error_text text, status integer, target jsonb, tags text[]
) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_tsvector(
        'pg_catalog.simple'::regconfig,
        'w' || replace(workspace_id::text, '-', '') || ' ' || regexp_replace(
            coalesce(reason, '') || ' ' || coalesce(error, '') || ' ' || coalesce(error_text, '') || ' '
            || coalesce(status::text, '') || ' '
            || coalesce(substring(target ->> 'url' FROM '^[^:/]+://(?:[^/?#@]*@)?([^/?#]*)'), '') || ' '
            || coalesce(target ->> 'topic', '') || ' ' || coalesce(array_to_string(tags, ' '), ''),
            '[^[:alnum:]]+', ' ', 'g'
        )
    )
$$
"""
INDEX = """
CREATE INDEX execution_failures ON execution_execution USING gin (
    execution_failure_words(
        workspace_id, state_reason, last_error, last_error_text, last_status, target, tags::text[]
    )
) WITH (gin_pending_list_limit = 1024) WHERE state = 'FAILED'
"""


class Migration(migrations.Migration):
    dependencies = [("execution", "0015_outgoing")]

    operations = [
        migrations.RunSQL(
            FUNCTION,
            "DROP FUNCTION execution_failure_words(uuid, text, text, text, integer, jsonb, text[])",
        ),
        migrations.RunSQL(INDEX, "DROP INDEX execution_failures"),
    ]
