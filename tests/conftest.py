from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Matrices are small and workers have a core each: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests compile more than they compute: optimisation would take longer than it saves. The older
# emitters, with one part a program, compile in 0.4 of the time (jaxlib 0.10). XLA stops at flags
# that it does not know: should a later one say so, leave them out.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # Workers, and processes that tests start, inherit it: what fits alike is compiled once.
    compiled = tempfile.mkdtemp(prefix="crlearn-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)

from crlearn.config import set_config

threadpool_limits(1)  # NumPy may have been imported before this file

settings.register_profile("crlearn", derandomize=True, deadline=None)
settings.load_profile("crlearn")


@pytest.fixture(autouse=True)
def _no_progress_bars() -> None:
    set_config(progress=False)
