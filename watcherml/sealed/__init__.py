"""Values that can be trusted: strict records, canonical bytes, digests. No effects of any kind."""
