"""The page: where people watch runs, answer questions and fetch results.

The server renders templates, and the modules in `static/` keep them live through the API. All visible text is in
`translations/`. It knows no HTTP routes, and decides nothing. Start with `app`, which lists every page.
"""
