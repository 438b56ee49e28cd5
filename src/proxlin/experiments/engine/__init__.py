"""What every study shares: configs, cases and their workers, the store of results, and the report."""
