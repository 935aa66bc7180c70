"""How a record of the table is written, and words that have none."""
