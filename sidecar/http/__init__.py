"""One file per endpoint family; all map to the same core."""
