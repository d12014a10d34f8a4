"""Every use of JAX's private parts."""
