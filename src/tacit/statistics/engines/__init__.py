"""Where the rows are: one statement sums, clips and adds up persons inside an engine of SQL."""
