"""The notebook: executed cells on record, capsules under failed cells, and recovery by panel or by call."""
