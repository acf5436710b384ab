"""How a map changes volumes: log-determinants of Jacobians, by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def log_determinants(
    function: Callable[[Any], Any], Z: Float[Array, "rows inputs"]
) -> Float[Array, " rows"]:
    """Return ``log |det J|`` of each row, or half of log det J'J if there are more outputs.

    Exact: the whole Jacobian is taken, one pass for each input, and O(outputs inputs^2) besides.
    So this is for few inputs. It can be differentiated.

    Parameters
    ----------
    function
        An injective map of one row to a vector.
    Z
        The rows.
    """
    n_inputs = Z.shape[1]
    (n_outputs,) = jax.eval_shape(function, Z[0]).shape
    if n_outputs < n_inputs:
        raise ValueError(
            f"function must have at least as many outputs as inputs, {n_inputs}: otherwise it is "
            f"not injective and has no log-determinant. It has {n_outputs}."
        )
    jacobians = jax.vmap(jax.jacfwd(function))(jnp.asarray(Z))
    if n_outputs == n_inputs:
        return jnp.linalg.slogdet(jacobians)[1]
    # J = QR gives the same as J'J, without squaring the condition.
    triangles = jnp.linalg.qr(jacobians)[1]
    return jnp.log(jnp.abs(jnp.diagonal(triangles, axis1=1, axis2=2))).sum(axis=1)
