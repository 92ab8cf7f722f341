"""The Agent Client Protocol (ACP), shared by all engines that speak it."""
