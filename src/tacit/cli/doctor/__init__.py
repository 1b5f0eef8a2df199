"""``tacit doctor``: whether what is installed here can keep what Tacit promises."""
