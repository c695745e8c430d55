"""One file a family of interventions; each turns capabilities into drafts of proposals."""
