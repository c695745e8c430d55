"""What failed and why, told from evidence: classes, message figures, capsules, causes, release of memory."""
