"""Examples that come with the package, and the data that they learn from.

elasticrun -np 2 python -m elasticrun.examples.digits
elasticrun -np 2 python -m elasticrun.examples.numpy_digits
"""
