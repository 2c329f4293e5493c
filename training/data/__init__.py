"""Which samples are whose: every epoch's order, its parts, the ledger of what was used, and the audit of that."""
