"""The sandbox around every engine: bubblewrap, what it shows, networks, system calls."""
