"""The page: where people watch runs, answer questions and fetch results."""
