"""The engines that run processes, each behind the protocol `Communicator`."""
