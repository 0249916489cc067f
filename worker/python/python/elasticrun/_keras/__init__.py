"""The shared implementation of elasticrun.keras and elasticrun.tensorflow.keras, for Keras 3 and tf_keras (Keras 2)."""
