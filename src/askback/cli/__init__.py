"""The command line. Knows the service and the terminal; decides nothing about runs."""
