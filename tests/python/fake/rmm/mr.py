"""Resources."""


class Stream:
    def __init__(self, handle):
        self._handle = handle

    def __cuda_stream__(self):
        return 0, self._handle


class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self._allocate_func, self._deallocate_func = allocate_func, deallocate_func

    def allocate(self, nbytes, stream=Stream(0)):
        try:
            return self._allocate_func(nbytes, stream)
        except MemoryError as error:  # on its way it is one of C++'s
            raise MemoryError(f"std::bad_alloc: out_of_memory: {error}") from None

    def deallocate(self, ptr, nbytes, stream=Stream(0)):
        self._deallocate_func(ptr, nbytes, stream)


_resources = {}


def set_per_device_resource(device, mr):
    _resources[device] = mr


def get_per_device_resource(device):
    return _resources[device]
