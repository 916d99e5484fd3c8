"""Stands for the package weir where bench/torch_programs.py is tested: as in the stand-in for PyTorch beside it, an allocator that is
told what it has to hold, with nothing over what is live."""

OPTIONS = {"thread_cache": "", "reuse_wait": "", "budget": ""}


class Refused(ValueError):
    pass


def set_option(name, value):
    if name not in OPTIONS:
        raise Refused(f"there is no option {name}")
    OPTIONS[name] = value
