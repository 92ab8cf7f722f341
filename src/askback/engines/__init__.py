"""The engines, one module or package each, without I/O. `base` defines an engine; `registry` finds them."""
