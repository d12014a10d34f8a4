"""Every flag of every supported jaxlib: types, defaults, values, history and replacements."""
