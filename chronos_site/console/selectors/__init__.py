"""What the whole site is doing, as plain data: read by the `chronos` command and by the operators' pages.

Nothing here renders, and nothing here writes to Postgres. Every function that takes `workspace_ids` reads of all
workspaces where it is None, and of none where it is empty: whoever may see some only passes those. All of them are made
for tables of millions: ranges of indexes, a cap on what is counted, and a time limit on each statement.
"""
