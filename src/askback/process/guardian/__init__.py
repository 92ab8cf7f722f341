"""The guardian: a separate program that starts every engine and ends its process tree."""
