"""Language model upstreams."""
