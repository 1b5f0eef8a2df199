"""What a dock shows in a browser: pages that the server renders and that need no script."""
