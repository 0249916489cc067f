"""What elasticrun.keras and elasticrun.tensorflow.keras share. Takes objects of Keras 3 and of tf_keras (Keras 2)."""
