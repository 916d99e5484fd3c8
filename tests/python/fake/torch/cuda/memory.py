def mem_get_info(device):
    return 1 << 30, 1 << 30  # the stub's


__all__ = ["mem_get_info"]
