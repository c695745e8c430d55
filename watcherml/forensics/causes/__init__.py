"""Why memory ran out: rules over numbers, one file a family, in the order of their table."""
