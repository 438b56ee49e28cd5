"""`proxlin fit`: robust regression of a table, from its columns to a model file and a page."""
