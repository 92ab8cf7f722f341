"""One turn: prepare, execute, observe, verdict; its process, and shortages of the machine."""
