"""Files and folders: walking, copying, atomic writes. No domain knowledge."""
