"""The routes of the API, one module for each resource. `http.routing` declares how a route is written."""
