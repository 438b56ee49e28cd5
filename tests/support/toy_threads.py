"""A case that says how many threads LAPACK has in its worker."""


def count(settings: dict) -> dict:
    import numpy as np
    import scipy.linalg  # whose LAPACK is JAX's
    from threadpoolctl import threadpool_info

    assert np.ones(1) @ scipy.linalg.cholesky(np.ones((1, 1))) == 1
    pools = [each for each in threadpool_info() if each["user_api"] == "blas"]
    return {"threads": [each["num_threads"] for each in pools]}
