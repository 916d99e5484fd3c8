def mem_get_info(device):
    raise NotImplementedError


__all__ = ["mem_get_info"]
