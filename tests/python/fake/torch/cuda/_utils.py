def _get_device_index(device, optional=False):
    return 0 if device is None and optional else device
