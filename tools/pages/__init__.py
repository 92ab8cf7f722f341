"""The generated pages, one module each: `page()` gives the text. Nothing here writes a file."""
