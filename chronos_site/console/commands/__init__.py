"""The subcommands of `manage.py chronos`, one module each: NAME, SUMMARY, `add_arguments`, `run`.

`run(terminal, options)` answers the exit code. State is read by `chronos_site.console.selectors` and `.checks`, what
changes something is done by the services of its room; here it is only asked for and shown.
"""
