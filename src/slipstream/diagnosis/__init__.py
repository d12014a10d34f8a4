"""Profile to diagnosis: rules over all analyses, each with evidence, gain and remedy."""
