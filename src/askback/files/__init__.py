"""Files and folders: walking, copying. Knows no domain."""
