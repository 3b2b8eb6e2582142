"""The page: figures of traces and studies in one HTML file that opens offline."""
