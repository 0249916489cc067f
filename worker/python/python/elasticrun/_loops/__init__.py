"""What the modules for Lightning, Transformers and Accelerate share: their loops run inside of ``elastic.run``."""
