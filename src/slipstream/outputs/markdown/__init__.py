"""Results as Markdown, for the comment of a pull request."""
