"""Profile → costs → recompile → proof, inside a running JAX process or around one."""
