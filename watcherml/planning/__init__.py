"""What could be tried: capabilities, proposals, authorization. Pure functions of values."""
