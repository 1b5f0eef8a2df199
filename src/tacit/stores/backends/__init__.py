"""Where sealed documents are kept: each place writes all or nothing, and deletes what it can."""
