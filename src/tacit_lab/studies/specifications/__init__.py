"""What the study of specifications shares: tasks, learnwares, baselines, reuse, figure and page."""
