"""Who was in: declared subsets, shadow models, two hypotheses, a finite secret."""
