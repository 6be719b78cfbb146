"""What may be wrong, as findings: what is looked at, how bad it is, one sentence, and what to do."""
