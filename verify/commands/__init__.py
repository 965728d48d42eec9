"""The commands of `attnproof`, one a module: `add_arguments(parser)` and `run(args) -> exit code`."""
