"""What the experiments of the residual-PAC paper share: data, networks, studies, page."""
