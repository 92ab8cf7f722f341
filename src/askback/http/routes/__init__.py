"""The operations of the API, one module for each resource. `http.routing` says how one is declared."""
