"""The sandbox around every engine: bubblewrap, visible files, networks, system calls."""
