"""Result types that one package computes and another displays."""
