"""A campaign: what runs next, what is on record, and the process that supervises it."""
