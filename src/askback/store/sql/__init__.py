"""What stores in SQL databases share: rows, statements, reads and writes. A database adds connections and its dialect."""
