"""How arrays of the libraries that are known by themselves are stored; imported when one is seen."""
