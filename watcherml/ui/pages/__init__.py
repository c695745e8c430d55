"""One module a view: ``show`` reads what its page needs and returns it."""
