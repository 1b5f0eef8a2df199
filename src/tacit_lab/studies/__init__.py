"""What the experiments share, study by study: data, measures, verdicts, pages."""
