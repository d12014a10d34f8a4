"""Results as pages: one HTML file each, complete in itself."""
