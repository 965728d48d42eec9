"""The device check: one prepared run that says whether our kernels are right and how fast, on a GPU or emulated."""
