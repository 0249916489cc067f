"""Has TensorFlow and JAX leave processors for each other: they would take all, in each worker."""

import os

os.environ.update(
    TF_CPP_MIN_LOG_LEVEL="3",
    TF_NUM_INTRAOP_THREADS="1",
    TF_NUM_INTEROP_THREADS="2",
    XLA_FLAGS="--xla_cpu_multi_thread_eigen=false",
)
