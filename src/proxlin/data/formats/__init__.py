"""One file for each kind of table that `data.frames` reads; `columns` is what they all return."""
