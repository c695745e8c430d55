"""What a person declares before any compute: success, limits, permissions, identity. Sealed values only."""
