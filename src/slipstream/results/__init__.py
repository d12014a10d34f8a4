"""Results that several rooms produce or show."""
